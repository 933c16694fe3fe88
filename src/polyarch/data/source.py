"""Source: where a task's data comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from polyarch.data.splitting import RawData, make_task
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.settings import Count, check, check_names, plain

SPLITTING = ("select", "search", "calibrate", "test", "labels", "split_seed")
"""The settings that say how data is split, not how it is read."""


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Where data comes from. Keyword-only fields are settings; positional fields say which data."""

    highest_byte: ClassVar[float] = 255.0
    """What white is, where inputs are images of bytes."""

    select: float = 0.15
    """Validation examples, to stop and select by: a share below 1 of all examples, or a count; 0 for none."""
    search: float = 0.0
    """Examples that belief alone is learnt on, a share or a count; 0: it learns on those of `select`."""
    calibrate: float = 0.0
    """Examples that guarantees alone are made by, `predict --coverage` and `--risk`: a share or a count; 0: none."""
    labels: Count = 0
    """So many training examples keep their label, equally many per class; the others are unlabelled. 0: all keep it."""
    split_seed: Count = 0
    """Which random split."""

    def __post_init__(self) -> None:
        check(self)

    @property
    @abstractmethod
    def text(self) -> str | None:
        """What `load` finds this source by: a name or an absolute path; None for data in memory."""

    @abstractmethod
    def read(self) -> RawData:
        """All examples, not yet split."""

    def test_share(self, raw: RawData) -> float:
        """How much of the examples is set aside for test: nothing, where the data comes with a test set."""
        return 0.0

    def settings(self) -> dict[str, Any]:
        """All settings by name, with their values."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self) if field.kw_only}

    def task(self) -> Task:
        """Reads, checks and splits the data."""
        return self.split(self.read())

    def split(self, raw: RawData) -> Task:
        """Checks and splits what was read."""
        return make_task(
            raw,
            name=Path(self.text).stem if self.text else type(self).__name__.lower(),
            sizes={
                "select": self.select,
                "search": self.search,
                "calibrate": self.calibrate,
                "test": self.test_share(raw),
            },
            labels=self.labels,
            split_seed=self.split_seed,
            source={"data": self.text, "settings": self.settings()} if self.text else None,
            again=partial(self._split_anew, raw),
        )

    def _split_anew(self, raw: RawData, **settings: Any) -> Task:
        check_replaced(settings)
        check_names(type(self), list(settings))
        for name in settings:
            if name not in SPLITTING:
                raise PolyarchError(f"{name} says how data is read, not how it is split; load the data again with it")
        return replace(self, **settings).split(raw)


def check_replaced(names: Iterable[str]) -> None:
    """Raises for the setting that validation data had before it had several roles."""
    if "valid" in names:
        raise PolyarchError(
            "the setting valid is now called select: validation examples, to stop and select by; search and calibrate "
            "set examples aside for learning belief and for calibration"
        )


@dataclass(frozen=True, kw_only=True)
class Unsplit(Source):
    """Data that may come without a test set of its own."""

    test: float = 0.2
    """Test examples: a share below 1, or a count; 0 for none. Not for data with its own test set."""

    @override
    def test_share(self, raw: RawData) -> float:
        """The setting `test`; nothing where the data has a test set, which then is the test set."""
        if raw.x_test is None:
            return self.test
        default = type(self).__dataclass_fields__["test"].default
        if self.test != default:
            raise PolyarchError(f"{raw.where}: it has its own test set; leave out the setting test={self.test}")
        return 0.0
