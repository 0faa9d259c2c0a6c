# `make demo` trains a small coding agent, `make test` runs every check; both set up their own environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
export OMP_WAIT_POLICY ?= PASSIVE

ifeq ($(filter oneshell,$(.FEATURES)),)
$(error GNU make 3.82 or newer is needed; found $(MAKE_VERSION))
endif

.PHONY: help setup demo test lint bench clean

help:
	@echo "make demo   train a small coding agent on this machine and write a report (minutes)"
	@echo "make test   lint, types and all tests"
	@echo "make setup  the environment alone ($(VENV))"
	@echo "make bench  the performance ratios (benchmarks/)"

setup: $(STAMP)

# The stamp is written last, so that an interrupted installation is done again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Python 3.11 or newer is needed; set one with: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "Python's venv module is missing; install it (Debian: apt-get install python3-venv)" >&2; exit 2; }
	@echo "setting up $(VENV) (once; a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,test]'
	@touch $@

demo: setup
	@$(BIN)/didpo train --run-dir runs/demo --overwrite

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

test: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

bench: setup
	@for f in benchmarks/*_speed.py; do echo "== $$f"; $(BIN)/python $$f || exit 1; done

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache
