"""`load`: finds the source for a text, arrays or a Dataset, and makes the Task."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any

from torch.utils.data import Dataset

from polyarch.data.files import Csv, ImageFolder, Npz, Parquet
from polyarch.data.fourier import FourierSeries
from polyarch.data.likelihood import Likelihood
from polyarch.data.memory import Arrays, TorchDataset
from polyarch.data.names import Digits, Spirals
from polyarch.data.own_likelihoods import text_of
from polyarch.data.published import Cifar10, Cifar100, FashionMnist, Mnist, Svhn
from polyarch.data.source import Source, check_replaced
from polyarch.data.task import Task
from polyarch.errors import PolyarchError, unknown
from polyarch.settings import check_names, make

SOURCES: dict[str, tuple[type[Source], str]] = {
    "digits": (Digits, "1797 handwritten digits of 8x8 pixels; needs no files"),
    "spirals": (Spirals, "two interleaved spiral arms in the plane, drawn afresh; needs no files"),
    "fourier": (FourierSeries, "a Fourier series of unknown degree, drawn afresh (regression); needs no files"),
    "mnist": (Mnist, "70 000 handwritten digits of 28x28 pixels, from IDX files"),
    "fashion-mnist": (FashionMnist, "70 000 pieces of clothing of 28x28 pixels, from IDX files"),
    "cifar10": (Cifar10, "60 000 colour photographs of 32x32 pixels, 10 classes, from the binary version"),
    "cifar100": (Cifar100, "60 000 colour photographs of 32x32 pixels, 100 classes, from the binary version"),
    "svhn": (Svhn, "99 289 house-number digits in colour, 32x32 pixels, from .mat files"),
    "*.npz": (Npz, "arrays x and y (and x_test, y_test) in a file of your own"),
    "*.csv": (Csv, "a table of your own: one column to predict, numbers and words in the others, gaps allowed"),
    "*.parquet": (Parquet, "a table of your own as Parquet; needs polyarch[parquet]"),
    "*/": (ImageFolder, "a folder of images of your own, one sub-folder per class"),
}
"""What a text given to `load` may be, a name or a pattern of paths: its class and a description."""


def source_for(text: str) -> type[Source]:
    """The class that reads the data a text names: a name, or a path to a file or folder."""
    if text in SOURCES and "*" not in text:
        return SOURCES[text][0]
    path = os.path.expanduser(text)
    shown = path.rstrip("/") + "/" if os.path.isdir(path) else path.lower()
    for pattern, (cls, _) in SOURCES.items():
        if fnmatchcase(shown, pattern):
            return cls
    if os.path.exists(path):
        raise PolyarchError(f"{text}: not a file polyarch reads; give a .npz, a .csv, a .parquet or a folder of images")
    if os.sep in text or os.path.splitext(text)[1]:
        raise PolyarchError(f"{text}: no such file or folder; check the path")
    raise unknown("data", text, SOURCES)


def source_from(text: str, settings: dict[str, Any]) -> Source:
    """The source a text names, with these settings; the others have their defaults."""
    cls = source_for(text)
    takes_path = any(not field.kw_only for field in fields(cls))
    return _made(cls, (text,) if takes_path else (), settings)


def load(source: str | os.PathLike[str] | Sequence[Any] | Dataset[Any], **settings: Any) -> Task:
    """Data in, a Task out.

    Args:
        source: a name or path (see `SOURCES`), arrays (x, y) or (x, y, x_test, y_test), or a map-style torch
            Dataset of (x, y) items. x is [n, features], [n, height, width] or [n, channels, height, width], or a data
            frame, or, where networks take several inputs, a tuple or a mapping of arrays; y are classes, as words or
            whole numbers, or numbers to predict, or what a `likelihood` takes.
        **settings: the source's settings (see `settings_of`), such as `select=0.1`; for a Dataset, `test` may
            also be a Dataset.

    Raises:
        PolyarchError: the data or a setting is wrong; the text says what, where, and what to do.
    """
    return source_of(source, **settings).task()


def source_of(source: str | os.PathLike[str] | Sequence[Any] | Dataset[Any], **settings: Any) -> Source:
    """Where the data comes from that `load` would read."""
    settings = {name: os.fspath(v) if isinstance(v, os.PathLike) else v for name, v in settings.items()}
    given = settings.get("likelihood")
    if isinstance(given, Likelihood) or (isinstance(given, type) and issubclass(given, Likelihood)):
        settings["likelihood"] = text_of(given)
    if isinstance(source, str | os.PathLike):
        return source_from(os.fspath(source), settings)
    if isinstance(source, Dataset):
        held_out = [settings.pop("test")] if isinstance(settings.get("test"), Dataset) else []
        return _made(TorchDataset, (source, *held_out), settings)
    if isinstance(source, tuple | list) and len(source) in (2, 4):
        return _made(Arrays, tuple(source), settings)
    raise PolyarchError(
        f"cannot load data from {type(source).__name__}; give a name, a path, (x, y), (x, y, x_test, y_test)"
        " or a torch Dataset"
    )


def _made(cls: type[Source], data: tuple[Any, ...], settings: dict[str, Any]) -> Source:
    check_replaced(settings)
    check_names(cls, settings)
    names = [field.name for field in fields(cls) if not field.kw_only]
    return make(cls, {**dict(zip(names, data, strict=False)), **settings})  # not every array or Dataset is given
