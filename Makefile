SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON  ?= python3
PROFILE ?= quick
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help reproduce test test-all lint types lab figures page site bench lock models clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=...")'
	@echo "Setting up $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet -r requirements.lock
	@$(BIN)/pip install --quiet --no-deps -e .
	@touch $@

reproduce: $(STAMP) ## train, evaluate and plot the results (PROFILE=quick)
	$(BIN)/python -m audit reproduce --profile $(PROFILE)

# loadgroup hands a worker one test at a time, in the order of tests/conftest.py.
test: lint types ## run every check: lint, types, tests (long ones in a short form), notebooks
	$(BIN)/pytest -n 2 --dist loadgroup

test-all: lint types ## the same with every long test
	$(BIN)/pytest -n 2 --dist loadgroup -m "long or not long"

lint: $(STAMP) ## check style, formatting and the order of parts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP) ## check types in the package and the notebooks
	$(BIN)/mypy
	PYTHONPATH="$(CURDIR)" $(BIN)/nbqa mypy notebooks

# Figures of changed parameters must not replace the committed ones. Notebooks link to files above their folder.
lab: $(STAMP) ## open the notebooks in JupyterLab; their figures go to build/figures
	PYTHONPATH="$(CURDIR)" ABC_NB_FIGURES="$(CURDIR)/build/figures" $(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks

figures: $(STAMP) ## run the notebooks in place on the shipped results; write figures/ and its report
	$(BIN)/abc-nb notebooks
	$(BIN)/python -m audit notebooks
	$(BIN)/python -m audit report

page: $(STAMP) ## write docs/index.html from shipped weights (wants Chromium)
	$(BIN)/python docs/page/build.py

site: $(STAMP) ## write build/site: the page and the course as HTML
	$(BIN)/python docs/page/website.py

bench: $(STAMP) ## measure speed
	$(BIN)/python benchmarks/run.py

# Resolved in a fresh environment. Left out: local version labels (+cpu) and the
# accelerator libraries, which torch itself pins for each platform. Soup Sieve 3 refuses Python 3.11.0 to 3.11.4.
lock: ## resolve pyproject.toml anew into requirements.lock
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/pip install --quiet -e '.[dev]' 'soupsieve<3'
	{ echo "# Every dependency, direct and transitive. Written by: make lock"; \
	  build/lock/bin/pip freeze --all --exclude pip --exclude abc-nb \
	  | sed 's/+[[:alnum:].]*$$//' | grep -Ev '^(nvidia|cuda|triton)' | LC_ALL=C sort -f; } > build/requirements.lock
	mv build/requirements.lock requirements.lock
	rm -rf build/lock

models: $(STAMP) ## copy the story's models from results/ into the package
	rm -rf build/models
	$(BIN)/python -c 'from pathlib import Path; from abc_nb import load; from abc_nb.runs.store import ship; \
	  [ship(load(f"{task}-{model}"), True, Path("build/models")) for task in ("successor", "addition", "n-by-1", "parity") for model in ("abs", "abc")]'
	rm -rf abc_nb/data/models
	mv build/models abc_nb/data/models

clean: ## remove build files and caches (ALL=1: runs/ and .venv too)
	rm -rf build figures/smoke *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +
	$(if $(filter 1,$(ALL)),rm -rf runs $(VENV))
