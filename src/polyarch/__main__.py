"""`python -m polyarch`, as torchrun needs it."""

from polyarch.cli.main import run

run()
