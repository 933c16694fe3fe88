"""Inputs that stay on the disk are the same as in memory, in every batch and in every answer."""

import datetime
import gc
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

import polyarch as pa
from polyarch.data.readers import MappedArrays, mapped_npz
from polyarch.data.rows import Rows, scanned
from polyarch.errors import PolyarchError
from polyarch.runs.preparing import first_stage
from polyarch.runs.search import configured
from polyarch.training.loop import Loop

SIDE = 6


def pictures(folder: Path, count: int = 60, grey: bool = False) -> Path:
    random = np.random.default_rng(0)
    for k in range(count):
        file = folder / str(k % 3) / f"{k:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (SIDE, SIDE) if grey and k % 2 else (SIDE, SIDE, 3), np.uint8)).save(
            file
        )
    return folder


class Own(Dataset):
    """Pairs of an image in floats and its class."""

    def __init__(self, count: int = 40, broken: int = -1) -> None:
        self.x = torch.randn(count, 2, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
        self.count, self.broken = count, broken

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        if k == self.broken:
            raise ValueError("torn")
        return self.x[k] * (1 + k % 2), k % 2


def same(one: pa.data.Task, other: pa.data.Task) -> None:
    """On disk and in memory: the same examples, seen alike."""
    assert one.inputs == other.inputs
    assert one.splits.keys() == other.splits.keys()
    for name, split in one.splits.items():
        there = other.splits[name]
        assert isinstance(split.x, Rows)
        assert torch.equal(split.x[:], there.x)
        assert torch.equal(split.y, there.y)
        assert torch.equal(torch.cat(list(split.x.split(7))), there.x)
        torch.testing.assert_close(one.seen(split).x[:], other.seen(there).x)


@pytest.mark.parametrize("grey", [False, True])
def test_a_folder_of_images_is_the_same_on_disk_as_in_memory(tmp_path, grey):
    pictures(tmp_path, grey=grey)
    disk, memory = (pa.data.load(tmp_path, keep=keep, workers=1) for keep in ("disk", "memory"))
    same(disk, memory)
    same(disk.resplit(select=0.3, search=0.2), memory.resplit(select=0.3, search=0.2))
    # Bytes have exact sums, so that statistics of one pass equal those of two.
    for name, value in memory.preprocess.state_dict().items():
        torch.testing.assert_close(disk.preprocess.state_dict()[name], value, rtol=1e-6, atol=0)


def test_arrays_that_lie_in_a_file_stay_there(tmp_path):
    random = np.random.default_rng(0)
    x, y = random.normal(3, 2, (300, 5)).astype(np.float32), random.integers(0, 3, 300)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    disk, memory = pa.data.load((mapped, y)), pa.data.load((x, y))
    same(disk, memory)
    assert disk.preprocess.mean.numpy() == pytest.approx(memory.preprocess.mean.numpy(), rel=1e-5)
    assert disk.preprocess.std.numpy() == pytest.approx(memory.preprocess.std.numpy(), rel=1e-5)


def test_a_npz_is_read_where_it_lies_unless_it_is_compressed(tmp_path):
    random = np.random.default_rng(0)
    arrays = {"x": random.integers(0, 256, (50, 1, SIDE, SIDE), np.uint8), "y": np.arange(50) % 2}
    arrays |= {"x_test": arrays["x"][:10], "y_test": arrays["y"][:10]}
    np.savez(tmp_path / "plain.npz", **arrays)
    np.savez_compressed(tmp_path / "small.npz", **arrays)
    for name, value in mapped_npz(str(tmp_path / "plain.npz")).items():
        assert isinstance(value, np.memmap)
        assert np.array_equal(value, arrays[name])
    same(pa.data.load(tmp_path / "plain.npz", keep="disk"), pa.data.load(tmp_path / "plain.npz"))
    with pytest.raises(PolyarchError, match="does not compress"):
        pa.data.load(tmp_path / "small.npz", keep="disk")


def test_items_of_a_dataset_are_read_when_they_are_needed():
    same(pa.data.load(Own(), keep="disk", workers=1), pa.data.load(Own()))
    with pytest.raises(PolyarchError, match=r"^Own: item 17 cannot be read \(ValueError: torn\)"):
        pa.data.load(Own(broken=17), keep="disk", workers=2)


def test_tokens_stay_whole_numbers(tmp_path):
    x = np.random.default_rng(0).integers(0, 9, (60, 4))
    np.save(tmp_path / "x.npy", x)
    task = pa.data.load((np.load(tmp_path / "x.npy", mmap_mode="r"), np.arange(60) % 2))
    assert task.tokens == x.max() + 1
    assert task.seen(task.train).x[:3].dtype == torch.int64


def test_the_fingerprint_knows_every_byte_label_and_split(tmp_path):
    pictures(tmp_path)
    known = [pa.data.load(tmp_path, keep="disk", workers=0).fingerprint]
    known += [pa.data.load(tmp_path, keep="disk", workers=0, split_seed=1).fingerprint]
    file = tmp_path / "0" / "000.png"
    image = np.asarray(Image.open(file)).copy()
    image[0, 0, 0] ^= 1
    Image.fromarray(image).save(file)
    known += [pa.data.load(tmp_path, keep="disk", workers=0).fingerprint]
    os.rename(tmp_path / "0" / "003.png", tmp_path / "1" / "003.png")
    known += [pa.data.load(tmp_path, keep="disk", workers=0).fingerprint]
    assert len(set(known)) == len(known)
    assert pa.data.load(tmp_path, keep="disk", workers=2).fingerprint == known[-1]


def test_what_is_damaged_or_of_another_size_is_named_before_a_search(tmp_path):
    pictures(tmp_path)
    Image.new("RGB", (SIDE + 1, SIDE)).save(tmp_path / "1" / "zz.png")
    with pytest.raises(PolyarchError, match=r"zz\.png is 7x6 but .* is 6x6"):
        pa.data.load(tmp_path, keep="disk")
    (tmp_path / "1" / "zz.png").write_bytes(b"no image")
    with pytest.raises(PolyarchError, match=r"zz\.png: not a readable 8-bit image") as error:
        pa.data.load(tmp_path, keep="disk", size=6)
    assert "\n" not in str(error.value)
    random = np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32)
    random[570, 1] = np.nan
    with pytest.raises(PolyarchError, match=r"x\[512:600\]\[58, 1\] is nan"):
        scanned(MappedArrays(random, np.zeros(600), "mine: x"), "mine")


def table(path: Path, count: int = 700) -> Path:
    """A Parquet file with words, gaps in both kinds of columns, dates, and a column of texts that say nothing."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    random = np.random.default_rng(0)
    width, hue = random.normal(1e6, 3, count), np.array(["red", "blue", "green"])[random.integers(0, 3, count)]
    empty = random.random((2, count)) < 0.1
    columns = {
        "width": arrow.array(width, mask=empty[0]),
        "hue": arrow.array(hue, mask=empty[1]),
        "day": arrow.array([datetime.date(2020, 1, 1)] * count),
        "name": [f"n{k}" for k in range(count)],
        "height": random.integers(0, 50, count),
        "label": ["big" if w > 1e6 else "small" for w in width],
    }
    parquet.write_table(arrow.table(columns), path, row_group_size=100)
    return path


def test_a_table_is_the_same_on_disk_as_in_memory(tmp_path):
    path = table(tmp_path / "t.parquet")
    settings = {"drop": ("day",)}
    disk, memory = (pa.data.load(path, keep=keep, **settings) for keep in ("disk", "memory"))
    assert (disk.columns, disk.classes, disk.input_shape) == (memory.columns, memory.classes, memory.input_shape)
    assert disk.inputs == memory.inputs
    assert disk.train.x.seen(disk.preprocess, None).shape == (len(disk.train), *disk.input_shape)
    for name, value in memory.preprocess.state_dict().items():
        assert torch.equal(disk.preprocess.state_dict()[name], value)
    for name, split in disk.splits.items():
        assert isinstance(split.x, Rows)
        torch.testing.assert_close(split.x[:], memory.splits[name].x, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(disk.seen(split).x[:], memory.seen(memory.splits[name]).x)
    with pytest.raises(PolyarchError, match="column 'day' holds dates"):
        pa.data.load(path, keep="disk")
    method = pa.methods.VariationalDepth(epochs=2, batch_size=64)
    runs = [
        pa.search(pa.spaces.ResidualDepth(max_depth=2, width=8), task, method, out=tmp_path / str(k))
        for k, task in enumerate((disk, memory))
    ]
    lines = [[{**line, "seconds": 0} for line in run.history()] for run in runs]
    assert lines[0] == lines[1]


SEARCHES = {
    "nasbench201": (pa.spaces.NasBench201(channels=4, cells=1), pa.methods.Darts(epochs=2, batch_size=16)),
    "depth": (pa.spaces.ResidualDepth(max_depth=2, width=4, stem_kernel=2), pa.methods.VariationalDepth(epochs=2)),
    "a roll-out": (
        pa.spaces.NasBench201(channels=4, cells=1),
        pa.methods.named("sotl-darts", epochs=2, batch_size=8, **{"objective.steps": 2}),
    ),
}


def loop_of(name: str, folder: Path, keep: str) -> Loop:
    task, (space, method) = pa.data.load(folder, keep=keep, workers=1), SEARCHES[name]
    return first_stage(configured(space, task, method, repeats=2, compute=pa.Compute("cpu")), task, allow_changed=False)


@pytest.mark.parametrize("name", SEARCHES)
def test_epochs_from_disk_are_those_from_memory(tmp_path, name):
    pictures(tmp_path, 90)
    lines = {}
    for keep in ("disk", "memory"):
        loop = loop_of(name, tmp_path, keep)
        lines[keep] = [loop.epoch(), loop.epoch()]
    assert lines["disk"] == lines["memory"]


def test_processes_are_used_again_and_end_with_the_data(tmp_path):
    pictures(tmp_path, 90)
    before = _children()
    loop = loop_of("nasbench201", tmp_path, "disk")
    loop.epoch()
    reading = _children() - before
    assert 1 <= len(reading) <= 3
    loop.epoch()
    assert _children() - before == reading
    del loop
    gc.collect()
    assert _children() == before


def test_a_batch_is_read_by_whoever_is_left_when_the_rest_of_an_order_is_not_wanted(tmp_path):
    x = pa.data.load(pictures(tmp_path, 90), keep="disk", workers=2).train.x
    order = torch.randperm(len(x)).split(5)
    whole = list(x.batches(order))
    for _ in range(3):
        begun = x.batches(order)
        assert torch.equal(next(begun), whole[0])
        del begun
    assert all(torch.equal(a, b) for a, b in zip(x.batches(order), whole, strict=True))


def test_killed_and_resumed_it_ends_as_if_nothing_had_happened(tmp_path):
    data = pictures(tmp_path / "data", 60)
    space, method = SEARCHES["depth"][0], pa.methods.VariationalDepth(epochs=12, batch_size=16)

    def begin(out: Path) -> pa.Run:
        task = pa.data.load(data, keep="disk", workers=1)
        callbacks = [pa.callbacks.Checkpoints(seconds=0)]
        return pa.search(space, task, method, out=out, compute=pa.Compute("cpu"), callbacks=callbacks)

    child = os.fork()
    if not child:
        torch.set_num_threads(1)
        begin(tmp_path / "killed")
        os._exit(0)
    for _ in range(600):
        if (tmp_path / "killed" / "metrics.jsonl").exists() or os.waitpid(child, os.WNOHANG)[0]:
            break
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    whole, resumed = begin(tmp_path / "whole"), pa.resume(tmp_path / "killed")
    assert whole.architecture == resumed.architecture
    for line, again in zip(whole.history(), resumed.history(), strict=True):
        assert {**line, "seconds": 0} == {**again, "seconds": 0}


def _children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())
