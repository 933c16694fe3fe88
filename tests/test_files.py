"""Files of a run: whole or not there, and every damaged byte noticed."""

import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError, files
from polyarch.files import locked, read_json, write_json, write_whole
from polyarch.runs.config import FORMAT, Config
from polyarch.training import checkpoints

TENSORS = {
    "weights/a": torch.arange(6.0).reshape(2, 3),
    "streams/0/init": torch.arange(5, dtype=torch.uint8),
    "empty": torch.zeros(0),
    "scalar": torch.tensor(3),
}


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(PolyarchError, match="no room left to write"):
                write_whole(path, b"new")
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]


def test_data_reach_the_disk_before_the_name_does(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, original=original: (order.append(name), original(*a))[1])
    write_whole(tmp_path / "file", b"x")
    assert order == ["fsync", "replace", "fsync"]


def test_every_flipped_bit_of_a_json_file_is_noticed(tmp_path):
    value = {"seed": 0, "name": "é", "values": [1.5, 1e-30, None, True], "settings": {"b": 1, "a": 2}}
    path = tmp_path / "value.json"
    write_json(path, value)
    assert read_json(path) == value
    content = path.read_bytes()
    assert json.loads(content)["seed"] == 0
    unnoticed = 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with suppress(PolyarchError):
            assert value.items() <= read_json(path).items()  # damaged is the word digest itself
            unnoticed += 1
    assert unnoticed == len("digest")
    for length in range(len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(PolyarchError, match="is damaged"):
            read_json(path)


def test_json_is_strict(tmp_path):
    with pytest.raises(PolyarchError, match="a number in it is not finite"):
        write_json(tmp_path / "value.json", {"x": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    checkpoints.save(tmp_path / "c", TENSORS, {"epoch": 3, "best": [-float("inf")]})
    tensors, numbers = checkpoints.load(tmp_path / "c")
    assert numbers == {"epoch": 3, "best": [-float("inf")]}
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert torch.equal(tensors[name], value)
        assert tensors[name].dtype == value.dtype


@pytest.mark.parametrize("bits", [0x01, 0x20, 0xFF])
def test_every_flipped_byte_of_a_checkpoint_is_noticed(tmp_path, bits):
    path = tmp_path / "c"
    checkpoints.save(path, TENSORS, {"epoch": 3})
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :])
        with pytest.raises(checkpoints.Damaged, match="is damaged"):
            checkpoints.load(path)


def test_every_truncated_checkpoint_is_noticed(tmp_path):
    path = tmp_path / "c"
    checkpoints.save(path, TENSORS, {"epoch": 3})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(checkpoints.Damaged, match="is damaged"):
            checkpoints.load(path)


def test_a_checkpoint_of_another_version_is_not_taken_for_damaged(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "FORMAT", 99)
        checkpoints.save(tmp_path / "c", TENSORS, {})
    with pytest.raises(PolyarchError, match="another version of polyarch") as caught:
        checkpoints.load(tmp_path / "c")
    assert not isinstance(caught.value, checkpoints.Damaged)
    with pytest.raises(PolyarchError, match="cannot be read"):
        checkpoints.load(tmp_path / "absent")


def test_two_checkpoints_are_kept(tmp_path):
    for epoch in range(5):
        checkpoints.save_next(tmp_path, TENSORS, {"epoch": epoch})
    assert [checkpoints.load(path)[1]["epoch"] for path in checkpoints.newest_first(tmp_path)] == [4, 3]
    assert len(os.listdir(tmp_path)) == 2


def test_a_lock_holds_against_this_and_other_processes_and_clears_what_a_killed_writer_left(tmp_path):
    for home in (tmp_path, tmp_path / "seed-1"):
        home.mkdir(exist_ok=True)
        (home / ".weights.safetensors.1.part").write_text("half")
    code = (
        "import sys; from pathlib import Path; from polyarch.files import locked\nwith locked(Path(sys.argv[1])): pass"
    )
    with locked(tmp_path):
        assert not list(tmp_path.rglob(".*"))
        with pytest.raises(PolyarchError, match="being written by another process"), locked(tmp_path):
            pass
        other = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        assert "being written by another process" in other.stderr
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_a_file_system_without_locks_is_not_taken_for_a_busy_one(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with pytest.raises(PolyarchError, match="Operation not supported"), locked(tmp_path):
        pass


def test_configs_of_another_version_or_shape(tmp_path):
    with pytest.raises(PolyarchError, match="holds no run"):
        Config.read(tmp_path)
    write_json(tmp_path / "config.json", {"format": 99})
    with pytest.raises(PolyarchError, match="use the version that wrote it"):
        Config.read(tmp_path)
    write_json(tmp_path / "config.json", {"format": FORMAT})
    with pytest.raises(PolyarchError, match="not a run's config"):
        Config.read(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(PolyarchError, match="is damaged"):
        Config.read(tmp_path)


def test_messages_are_one_line_each(tmp_path):
    (tmp_path / "config.json").write_text("{\n")
    with pytest.raises(PolyarchError) as caught:
        pa.open_run(tmp_path)
    assert "\n" not in str(caught.value)
