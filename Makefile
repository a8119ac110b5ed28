# Everything a newcomer needs: Python 3.11 or newer, and make.
PYTHON ?= python3
VENV   := .venv
# Versions that the tests ran with; `make LOCK= ...` takes the newest ones that pyproject.toml allows.
LOCK   ?= requirements-dev.lock
BIN    := $(VENV)/bin

# The tests of one package, by its name below tests/unit, tests/estimators, ...: make test PACKAGE=ledger
TESTS := $(if $(PACKAGE),$(wildcard tests/unit/$(PACKAGE) tests/$(PACKAGE) src/dplangevin/$(PACKAGE)))
COVERAGE ?=

export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export NO_MKDOCS_2_WARNING = 1
ifneq ($(wildcard ../shared/data/.),)
export DPLANGEVIN_DATA ?= $(abspath ../shared/data)
endif

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-lowest dist check audit mutants bench bench-charts bench-smoke docs docs-serve tutorials support lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

demo: $(VENV)/.ready-demo  ## set up, then fit a private model and show what running longer costs
	@$(BIN)/dplangevin demo

test: check  ## set up, then lint, types, layers, names and the tests; PACKAGE=ledger: the tests of one package
	$(BIN)/python -m pytest -n 2 -m "not slow" $(COVERAGE) $(TESTS)

test-all: check  ## the same with the slow tests
	$(BIN)/python -m pytest -n 2

check: $(VENV)/.ready-dev  ## lint, format, types, import layers, names and words (no tests)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/vocabulary.py

audit: $(VENV)/.ready-dev  ## attack every mechanism, estimator and file, honest and deliberately broken, and print the table
	PYTHONPATH=tests $(BIN)/python -m privacy.audit_table
	DPLANGEVIN_FUZZ=20000 $(BIN)/python -m pytest tests/privacy --ignore tests/privacy/test_audit_table.py
	DPLANGEVIN_FUZZ=100000 $(BIN)/python -m pytest tests/fuzz/test_states.py tests/fuzz/test_files.py tests/fuzz/test_ledgers.py
	$(BIN)/python -m pytest tests/fuzz/test_reading_matrix.py tests/fuzz/test_entries.py
	$(BIN)/python -m pytest tests/contracts/test_wiring.py tests/contracts/test_registered.py tests/contracts/test_scaling.py \
	  tests/contracts/test_resumed.py tests/contracts/test_arithmetic.py tests/contracts/test_row_wise_steps.py

test-lowest: $(VENV)-lowest/.ready  ## the tests with the lowest versions that pyproject.toml declares
	$(VENV)-lowest/bin/python -m pytest -n 2 -m "not slow"

dist: $(VENV)/.ready-dist  ## build sdist and wheel, and use the wheel in empty environments
	$(BIN)/python tools/dist.py

mutants: $(VENV)/.ready-dev  ## change one line of privacy-critical code at a time: every change must fail a test (hours)
	$(BIN)/python tests/mutants/run.py --workers 2

bench: $(VENV)/.ready-bench  ## measure; writes benchmarks/RESULTS.md, COUNTING.md and LOOSENESS.md
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/counting.py --rows 10000000 | tee benchmarks/COUNTING.md
	$(BIN)/python benchmarks/looseness.py > benchmarks/LOOSENESS.md
	$(BIN)/python benchmarks/charts.py

bench-charts: $(VENV)/.ready-dev  ## draw the charts of the benchmark pages and of the README anew, from the tables
	$(BIN)/python benchmarks/charts.py

docs: $(VENV)/.ready-docs  ## build the documentation site into site/; a dead link fails
	$(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

docs-serve: $(VENV)/.ready-docs  ## show the site at http://127.0.0.1:8000 while you write
	$(BIN)/mkdocs serve

bench-smoke: $(VENV)/.ready-bench  ## a few quick figures, printed only: does measuring still work?
	$(BIN)/python benchmarks/run.py account calibrate import sampled_gaussian

tutorials: $(VENV)/.ready-dev  ## run the tutorials and write what they print, and their pictures, into the pages
	$(BIN)/python tools/tutorials.py

support: $(VENV)/.ready-dev  ## try every feature with every estimator, mechanism and query; writes docs/support.md
	PYTHONPATH=tests $(BIN)/python -m support.write

lock: $(VENV)/.ready-dev  ## write the versions that are installed here to requirements-dev.lock
	$(BIN)/python tools/lock.py > requirements-dev.lock.new && mv requirements-dev.lock.new requirements-dev.lock

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) $(VENV)-lowest build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "dplangevin needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Choose another one: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@echo "Creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Could not create a virtual environment. On Debian or Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; }

$(VENV)-lowest/.ready: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m venv $(VENV)-lowest
	@$(BIN)/python tools/lowest.py > $(VENV)-lowest/constraints.txt
	@echo "Installing the lowest declared versions ..."
	@$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint $(VENV)-lowest/constraints.txt --editable ".[dev]"
	@touch $@

# A stamp per set of extras: installing is not repeated until pyproject.toml changes.
$(VENV)/.ready-%: pyproject.toml $(LOCK) | $(BIN)/python
	@echo "Installing dplangevin[$*] (a minute or two, once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(LOCK),--constraint $(LOCK)) --editable ".[$*]"
	@touch $@
