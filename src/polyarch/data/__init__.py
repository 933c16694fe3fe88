"""Data in: a name, a file, arrays or a torch Dataset becomes a Task."""

from polyarch.data.loading import SOURCES, load, source_for, source_from
from polyarch.settings import Setting, settings_of
from polyarch.data.source import Source
from polyarch.data.task import Classification, Gaussian, Split, Task

__all__ = [
    "SOURCES",
    "Classification",
    "Gaussian",
    "Setting",
    "Source",
    "Split",
    "Task",
    "load",
    "settings_of",
    "source_for",
    "source_from",
]
