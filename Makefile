# Everything a developer types: environment, demo, checks, tests. Assumes Python 3.11 or newer and a C compiler, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check lint types imports clean

# The stamps hold what was installed: an environment is built again only when the project's dependencies change.
$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.python
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/.python
	$(INSTALL) -e '.[dev]'
	touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/python examples/demo/demo.py

test: check
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup $(PYTEST_ARGS)

check: lint types imports

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist demo-output *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
