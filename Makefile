# Bare `make` lists the targets.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
# One thread per worker, for XLA and for OpenBLAS, whose threads spin while they wait for a busy core.
PYTEST := NPROC=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
# Python 3.11 stops at an older JAX than 3.12 and later do, so there are two lock files.
LOCK := requirements/$(shell $(PYTHON) -c 'import sys; print("py311" if sys.version_info < (3, 12) else "py312")').txt
# The other supported versions, for `make full`.
PYTHONS ?= python3.12 python3.13
SETTINGS := antiderivative darcy-128 darcy-1024 mechanical-mnist shallow-water climate

.DEFAULT_GOAL := help
.PHONY: help setup check lint types layers test gate full pythons versions mutants claims docs wheel bench load tour examples gallery results parity peers lock print-lock format clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## Make .venv with the locked requirements and both packages, editable
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed: make setup PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r $(LOCK)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable . --editable reproduction

check: lint types layers gate docs  ## Everything a change must pass: lint, types, layers, tests of the gate, docs

lint:  ## Style and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types:  ## Static types of the package
	$(BIN)/basedpyright --pythonpath $(BIN)/python

layers:  ## Imports go down the layers of docs/architecture.md, through doors, without circles
	$(BIN)/python -m pytest -q tests/test_architecture.py

test:  ## The fast tests, for every change: at most 4 minutes on two cores
	$(PYTEST) -m 'not slow'

gate:  ## The tests of the gate: fast and slow ones
	$(PYTEST) --durations=20

full: pythons lint types docs claims  ## Everything: all products and kills, claims, other Pythons, parity (2 hours)
	LOCA_FULL=1 $(PYTEST) --ignore reproduction/tests/test_claims.py --durations=40
	$(MAKE) versions parity

pythons:
	@for python in $(PYTHONS); do \
		$$python -c '' || { echo "$$python does not run; name the other versions by PYTHONS='path path'"; exit 1; }; \
	done

versions: pythons  ## The tests of the gate on the other supported versions of Python
	@for python in $(PYTHONS); do \
		$(MAKE) setup PYTHON=$$python VENV=.venv-$$(basename $$python) && $(MAKE) gate PYTHON=$$python VENV=.venv-$$(basename $$python) || exit 1; \
	done

mutants:  ## Plant defects one at a time: does the gate catch them?
	$(BIN)/python tools/mutants.py --workers $(WORKERS) --at-least 95

# without run-time type checks and with optimization, as users run them
claims:  ## All claims of the paper at their quick presets: are the verdicts, and bits of golden files, still the same?
	XLA_FLAGS= LOCA_FULL=1 $(PYTEST) reproduction/tests/test_claims.py tests/golden --override-ini addopts= --durations=0 --durations-min=1

docs:  ## Build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

wheel:  ## Build the wheel into dist/
	$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist

bench:  ## Time one training step in every setting: ours, bare JAX, the paper's layout
	@for setting in $(SETTINGS); do $(BIN)/loca-reproduce bench step --setting $$setting --json || exit 1; done

load:  ## Load the server: throughput against the bare model, response times, memory; writes reproduction/studies/load.json
	$(BIN)/python tools/load.py --out reproduction/studies/load.json

tour: wheel  ## Write docs/tour.md: a first run, in a fresh environment with only the wheel
	$(BIN)/python tools/tour.py

examples:  ## Draw the figures of docs/your-data.md by running its examples
	$(BIN)/python tools/your_data.py

gallery:  ## Run the scripts of examples/gallery, and write docs/gallery: pages, pictures and notebooks
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/gallery.txt
	$(BIN)/python tools/gallery.py

results:  ## Write docs/results.md, docs/comparisons.md, the table of the README and all figures from reproduction/results
	$(BIN)/python reproduction/tools/results.py
	$(BIN)/python reproduction/tools/compared.py

parity:  ## Compare with Kymatio, neuraloperator and DeepXDE; read exported programs in C++, Node and Python
	PYTHON=$(abspath $(BIN)/python) reproduction/parity/kymatio/run.sh
	PYTHON=$(abspath $(BIN)/python) reproduction/parity/peers/run.sh
	PYTHON=$(abspath $(BIN)/python) reproduction/parity/readers/run.sh

peers:  ## Match our models with neuraloperator and DeepXDE
	PYTHON=$(abspath $(BIN)/python) reproduction/parity/peers/environment.sh
	$(BIN)/loca-reproduce bench peers

COMPILE = $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url \
	--custom-compile-command 'make lock'

lock:  ## Renew the locked requirements, and the versions of the same tools in pre-commit
	$(COMPILE) requirements/uv.in --universal --python-version 3.11 --output-file requirements/uv.txt
	$(COMPILE) pyproject.toml --all-extras --group dev --python-platform linux --python-version 3.11 --output-file requirements/py311.txt
	$(COMPILE) pyproject.toml --all-extras --group dev --universal --python-version 3.12 --output-file requirements/py312.txt
	$(COMPILE) requirements/gallery.in --universal --python-version 3.11 --output-file requirements/gallery.txt
	@for tool in ruff codespell; do \
		version=$$(sed -n "s/^$$tool==\([^ ]*\).*/\1/p" requirements/py312.txt) && \
		sed -i.old "/repo: .*$$tool/{n;s/rev: .*/rev: v$$version/;}" .pre-commit-config.yaml && rm .pre-commit-config.yaml.old || exit 1; \
	done

print-lock:
	@echo $(LOCK)

format:  ## Rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove everything that can be built again, except .venv
	rm -rf site dist .ci/env .ci/wheel-env .jax-cache .pytest_cache .ruff_cache .rumdl_cache .hypothesis .venv-*
	find src tests tools reproduction -name __pycache__ -type d -prune -exec rm -rf {} +
