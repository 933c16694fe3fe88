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
    known = {
        "first": folders / "one" / "first.npz",
        "shared": folders / "one" / "shared.npz",
        "second": folders / "two" / "second.npz",
    }
    assert list(known_tables().items())[:3] == list(known.items())


def test_the_librarys_own_tables_come_last(folders):
    own = {"depth-spirals", "digits-network", "nasbench201-fashion14"}
    assert set(list(known_tables())[3:]) == own
    assert len(open_table("nasbench201-fashion14")) == 768
    np.savez(folders / "one" / "nasbench201-fashion14.npz", arch=np.array(["mine"]), acc=np.zeros(1))
    assert open_table("nasbench201-fashion14").architectures == ("mine",)


def test_a_path_comes_before_a_name(folders):
    assert open_table("two/shared.npz").architectures == ("two",)
    np.savez(folders / "shared.npz", arch=np.array(["here"]), acc=np.zeros(1))
    assert open_table("shared.npz").architectures == ("here",)
    assert open_table("shared").architectures == ("one",)


def test_what_is_not_found(folders, monkeypatch):
    said = {
        "secnd": "'secnd'; did you mean 'second'?; or set POLYARCH_TABLES to the folder that holds secnd.npz, or give",
        "two/first.npz": "two/first.npz: no such table; check the path",
    }
    for name, message in said.items():
        with pytest.raises(PolyarchError, match=re.escape(message)):
            find_table(name)
    monkeypatch.delenv("POLYARCH_TABLES")
    with pytest.raises(PolyarchError, match=r"table 'first'; .*or set POLYARCH_TABLES to the folder that holds f"):
        find_table("first.npz")
