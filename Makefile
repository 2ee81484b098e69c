# Development tasks; PYTHON is the interpreter that otafl[dev] is installed for.
PYTHON ?= .venv/bin/python

.PHONY: check lint types test test-slow test-all docs format benchmarks

check: lint types test

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(dir $(PYTHON))lint-imports

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

# tests of extras that are not installed are skipped
test-slow:
	$(PYTHON) -m pytest -m slow

test-all: test test-slow

docs:
	$(PYTHON) -m sphinx -W --keep-going -q -b html docs build/docs

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

benchmarks:
	$(PYTHON) benchmarks/run.py
