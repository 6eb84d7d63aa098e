# Two commands do everything on a fresh machine: `make demo` and `make test`.
# They need Python 3.11 or newer (PYTHON=python3.12 picks one) and a package index that pip knows.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
REAL := .real-sglang
# Tests at once: most of them wait for processes, so more than the cores of a small machine.
TESTERS ?= 3

.PHONY: help setup demo demo-real test test-real lint format types imports lock deploy clean

help:  ## Show what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## Make the environment in .venv from the hash-checked lock file

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"sglang-sweep needs Python 3.11 or newer, $(PYTHON) is {sys.version.split()[0]}; try make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies, one to two minutes ..."
	@$(BIN)/pip install --quiet --require-hashes --requirement requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## Run a whole sweep on the simulated host and print where its report is
	@$(BIN)/sglang-sweep demo

demo-real: setup  ## Run a sweep on the real SGLang, on this machine's CPU (installs 3 GB at first)
	@$(BIN)/python scripts/real_sglang/demo.py --root $(REAL) --python $(PYTHON)

test: setup  ## Run the test suite
	$(BIN)/pytest -m "not real" -n $(TESTERS) --dist loadgroup

test-real: setup  ## Run the tests that need the real SGLang, which is set up first
	@$(BIN)/python scripts/real_sglang/install.py --root $(REAL)
	$(BIN)/pytest -m real -n 2 --dist loadfile

lint: setup  ## Check format, lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup  ## Resolve pyproject.toml's dependencies anew into requirements.txt
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --extra dev \
	  --no-emit-index-url --no-header --quiet --upgrade pyproject.toml --output-file requirements.txt

deploy: setup  ## Register the deployments of prefect.yaml with the Prefect API that is configured
	$(BIN)/sglang-sweep setup
	$(BIN)/prefect --no-prompt deploy --all

clean:  ## Remove what the demos left; the environment and your own sweeps stay
	rm -rf .demo
