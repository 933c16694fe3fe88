"""Data in: a name, a file, arrays or a torch Dataset becomes a Task."""

from polyarch.data.counts import Counts
from polyarch.data.inputs import InputParts, input_parts, read_inputs, read_labelled
from polyarch.data.likelihood import Classification, Gaussian, Likelihood
from polyarch.data.loading import SOURCES, load, source_for, source_from
from polyarch.data.multi_label import MultiLabel
from polyarch.data.source import Source
from polyarch.data.splitting import RawData
from polyarch.data.task import Split, Task
from polyarch.settings import Setting, settings_of

__all__ = [
    "SOURCES",
    "Classification",
    "Counts",
    "Gaussian",
    "InputParts",
    "Likelihood",
    "MultiLabel",
    "RawData",
    "Setting",
    "Source",
    "Split",
    "Task",
    "input_parts",
    "load",
    "read_inputs",
    "read_labelled",
    "settings_of",
    "source_for",
    "source_from",
]
