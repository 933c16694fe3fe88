# `make demo` and `make test` work on a bare machine with Python 3.11 or newer and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: setup demo test check nightly docs bench gpu clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--no-build-isolation --editable '.[dev]'
	touch $(STAMP)

demo: setup
	rm -rf runs/demo
	$(BIN)/polyarch search --space depth --method variational-depth --data digits --out runs/demo --seed 0 \
		--set epochs=20 --set batch_size=128 --baselines 0,5,20

test: setup
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow and not nightly"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not nightly"

# What is long and about one thing alone, such as compiling kernels for a GPU that is not here.
nightly: setup
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m nightly

# The pages as a site, in site/index.html; nothing is fetched.
docs: setup
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --write-all --quiet docs site

bench: setup
	$(BIN)/python -m bench.depth
	$(BIN)/python -m bench.startup
	$(BIN)/python -m bench.memory
	$(BIN)/python -m bench.faults --kills 20
	$(BIN)/python -m bench.compare

# On a machine with a CUDA device, with the Python that has torch there: nothing is installed.
gpu:
	PYTHONPATH=src $(PYTHON) -m bench.gpu

clean:
	rm -rf $(VENV) runs site
