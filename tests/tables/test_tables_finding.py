import os
import re

import numpy as np
import pytest

from polyarch import PolyarchError
from polyarch.tables import find_table, known_tables, open_table


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two folders of tables; `shared` is in both."""
    for folder, names in (("one", ("first", "shared")), ("two", ("second", "shared"))):
        (tmp_path / folder).mkdir()
        for name in names:
            np.savez(tmp_path / folder / f"{name}.npz", arch=np.array([folder]), acc=np.zeros(1))
    monkeypatch.setenv("POLYARCH_TABLES", os.pathsep.join([str(tmp_path / "one"), "", str(tmp_path / "two")]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_is_found_in_the_folders_the_first_one_first(folders):
    assert find_table("second") == folders / "two" / "second.npz"
    assert find_table("second.npz") == folders / "two" / "second.npz"
    assert open_table("shared").architectures == ("one",)
    assert known_tables() == {
        "first": folders / "one" / "first.npz",
        "shared": folders / "one" / "shared.npz",
        "second": folders / "two" / "second.npz",
    }


def test_a_path_comes_before_a_name(folders):
    assert open_table("two/shared.npz").architectures == ("two",)
    np.savez(folders / "shared.npz", arch=np.array(["here"]), acc=np.zeros(1))
    assert open_table("shared.npz").architectures == ("here",)
    assert open_table("shared").architectures == ("one",)


def test_what_is_not_found(folders, monkeypatch):
    said = {
        "secnd": "unknown table 'secnd'; did you mean 'second'? (of POLYARCH_TABLES); or give the path",
        "two/first.npz": "two/first.npz: no such table; check the path",
    }
    for name, message in said.items():
        with pytest.raises(PolyarchError, match=re.escape(message)):
            find_table(name)
    monkeypatch.setenv("POLYARCH_TABLES", str(folders / "nowhere"))
    with pytest.raises(PolyarchError, match=r"nowhere.* holds no .npz file; set it to the folder that holds first.npz"):
        find_table("first")
    monkeypatch.delenv("POLYARCH_TABLES")
    with pytest.raises(
        PolyarchError, match=r"no table 'first.npz': .* POLYARCH_TABLES is not set; set it to the folder"
    ):
        find_table("first.npz")
    assert known_tables() == {}
