"""Out: what a search found, as one HTML page that needs nothing but a browser."""

from polyarch.report.page import write_report, write_summary_report

__all__ = ["write_report", "write_summary_report"]
