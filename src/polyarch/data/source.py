"""Source: where a task's data comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from polyarch.data.splitting import Examples, make_task
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.settings import Count, check, plain


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Where data comes from. Keyword-only fields are settings; positional fields say which data."""

    highest_byte: ClassVar[float] = 255.0
    """What white is, where inputs are images of bytes."""

    valid: float = 0.15
    """Validation examples, taken from the training data: a share below 1, or a count; 0 for none."""
    split_seed: Count = 0
    """Which random split."""

    def __post_init__(self) -> None:
        check(self)

    @property
    @abstractmethod
    def text(self) -> str | None:
        """What `load` finds this source by: a name or an absolute path; None for data in memory."""

    @abstractmethod
    def read(self) -> Examples:
        """All examples, not yet split."""

    def test_share(self, examples: Examples) -> float:
        """How much of the examples is set aside for test: nothing, where the data comes with a test set."""
        return 0.0

    def settings(self) -> dict[str, Any]:
        """All settings by name, with their values."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self) if field.kw_only}

    def task(self) -> Task:
        """Reads, checks and splits the data."""
        examples = self.read()
        return make_task(
            examples,
            name=Path(self.text).stem if self.text else type(self).__name__.lower(),
            source={"data": self.text, "settings": self.settings()} if self.text else None,
            valid=self.valid,
            test=self.test_share(examples),
            split_seed=self.split_seed,
        )


@dataclass(frozen=True, kw_only=True)
class Unsplit(Source):
    """Data that may come without a test set of its own."""

    test: float = 0.2
    """Test examples: a share below 1, or a count; 0 for none. Not for data with its own test set."""

    def test_share(self, examples: Examples) -> float:
        """The setting `test`; nothing where the data has a test set, which then is the test set."""
        if examples.x_test is None:
            return self.test
        default = type(self).__dataclass_fields__["test"].default
        if self.test != default:
            raise PolyarchError(f"{examples.where}: it has its own test set; leave out the setting test={self.test}")
        return 0.0
