"""Out: what a search found, or a comparison of many, as one HTML page that needs nothing but a browser."""

from polyarch.report.comparison import write_comparison
from polyarch.report.page import write_report, write_summary_report

__all__ = ["write_comparison", "write_report", "write_summary_report"]
