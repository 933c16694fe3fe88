"""Ground truth of a benchmark, read from one small file."""

from polyarch.tables.columns import Column
from polyarch.tables.converting import convert
from polyarch.tables.finding import find_table, known_tables, open_table
from polyarch.tables.table import Coverage, Table

__all__ = ["Column", "Coverage", "Table", "convert", "find_table", "known_tables", "open_table"]
