"""Which pages are written: a conftest cannot be imported by its name where two of them are collected."""

PAGES = {
    "digits": "digits_fixed",
    "spirals": "",
    "repeats": "spirals_fixed",
    "spirals_fixed": "",
    "regression": "",
    "unsplit": "",
    "cell_search": "",
    "cell_alone": "",
    "quick_cells": "",
    "pairs": "",
    "staged": "",
    "wiring": "",
    "wirings": "",
    "own": "",
    "owns": "",
}
"""Searches that have a page that several tests look at, each with its baselines."""
