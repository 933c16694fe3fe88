"""Ground truth of a benchmark, read from one small file; or what a model predicts of it."""

from polyarch.tables.belief import good_architectures, log_mass_on_good, regret
from polyarch.tables.benchmark import Benchmark, Coverage
from polyarch.tables.columns import Column
from polyarch.tables.converting import convert
from polyarch.tables.finding import find_table, known_tables, open_table, read_table
from polyarch.tables.surrogate import Surrogate
from polyarch.tables.table import Table
from polyarch.tables.truth import Truth, default_table, find_truth

__all__ = [
    "Benchmark",
    "Column",
    "Coverage",
    "Surrogate",
    "Table",
    "Truth",
    "convert",
    "default_table",
    "find_table",
    "find_truth",
    "good_architectures",
    "known_tables",
    "log_mass_on_good",
    "open_table",
    "read_table",
    "regret",
]
