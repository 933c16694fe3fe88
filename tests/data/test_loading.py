import json
from typing import Annotated

import numpy as np

from polyarch.data import SOURCES, load, settings_of, source_for, source_from
from polyarch.data.files import Csv, ImageFolder, Npz
from polyarch.data.memory import Arrays, TorchDataset
from polyarch.data.names import Digits, Spirals
from polyarch.settings import AtLeast


def test_texts_find_their_class(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert source_for("digits") is Digits
    assert source_for("./digits") is ImageFolder
    assert source_for("DATA.NPZ") is Npz
    assert source_for("a/b.csv") is Csv
    assert source_from("spirals", {"points": 10}) == Spirals(points=10)
    assert source_from("a.csv", {"label": "y"}) == Csv("a.csv", label="y")


def test_every_setting_has_help_and_a_default():
    for cls in [cls for cls, _ in SOURCES.values()] + [Arrays, TorchDataset]:
        settings = settings_of(cls)
        assert {"select", "search", "calibrate", "labels", "split_seed"} <= set(settings)
        assert "path" not in settings
        for setting in settings.values():
            assert setting.help, (cls, setting.name)
            assert isinstance(setting.default, bool | int | float | str | tuple)
    assert settings_of(Spirals)["select"].default == 0.0
    assert settings_of(Spirals)["points"].type == Annotated[int, AtLeast(4)]


def test_a_task_says_how_to_load_it_again(tmp_path, monkeypatch):
    np.savez(tmp_path / "d.npz", x=np.arange(40).reshape(20, 2), y=np.arange(20) % 2)
    monkeypatch.chdir(tmp_path)
    for task in (load("spirals", points=20, select=4), load("d.npz", select=3)):
        source = json.loads(json.dumps(task.source))
        monkeypatch.chdir("/")
        assert load(source["data"], **source["settings"]).fingerprint == task.fingerprint
        monkeypatch.chdir(tmp_path)


def test_bad_texts(fails, tmp_path):
    fails("minst", "did you mean 'mnist'")
    fails("*.npz", "no such file")
    fails(str(tmp_path / "none"), "no such file or folder")
    fails("nothing.parquet", "no such file or folder")
    (tmp_path / "d.xlsx").write_text("1")
    fails(str(tmp_path / "d.xlsx"), "d.xlsx", ".npz")
    fails("digits", "did you mean 'select'", selct=0.1)
    fails("a.csv", "unknown setting", path="b.csv")
