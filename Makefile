# Two commands matter: `make quickstart` and `make test`. Both set up .venv when it is missing.

PYTHON      ?= $(shell command -v python3.11 || command -v python3)
VENV        ?= .venv
WORKERS     ?= 2
PYTEST_ARGS ?=
CONFIG      ?= configs/lockstep/tabnet_digits.yaml
OUT         ?= out/tabnet_digits

BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
# One thread per test worker: two workers with all cores each only wait for one another.
PYTEST  := OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help env quickstart floor outputs test test-slow test-kill test-gpu lint clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(STAMP) ## Create or update .venv

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "traingen needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt torch
	@$(PIP) install -c constraints.txt -e '.[vendor,test]'
	@touch $@

quickstart: $(STAMP) ## Train TabNet's original and our port in lockstep and compare them
	@$(BIN)/traingen lockstep --config $(CONFIG) --out $(OUT) --overwrite

floor: $(STAMP) ## Measure how far the original differs from itself
	@$(BIN)/traingen lockstep --config $(CONFIG) --measure-floor

outputs: $(STAMP) ## Paste what commands print into README and tutorial
	@$(BIN)/python scripts/paste_outputs.py

test: $(STAMP) ## Run the tests that need neither long nor a GPU
	@$(PYTEST) -m "not slow and not gpu" $(PYTEST_ARGS)

test-slow: $(STAMP) ## Run the tests that train real originals
	@$(PYTEST) -m "slow and not gpu" $(PYTEST_ARGS)

test-kill: $(STAMP) ## Kill 50 recorded trainings at random times and read what is left
	@TRAINGEN_KILLS=50 OMP_NUM_THREADS=1 $(BIN)/pytest tests/callbacks/test_recorder_kill.py $(PYTEST_ARGS)

test-gpu: $(STAMP) ## Run the tests that need a CUDA device
	@$(BIN)/pytest -m gpu $(PYTEST_ARGS)

lint: $(STAMP) ## Check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src

clean: ## Remove .venv, outputs and caches
	@rm -rf $(VENV) out build dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
