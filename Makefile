# Development tasks; PYTHON is the interpreter that otafl[dev] is installed for.
PYTHON ?= .venv/bin/python

.PHONY: check lint types test test-slow test-all docs package format benchmarks gpu

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

package:
	rm -rf dist
	$(PYTHON) -m build --no-isolation
	$(PYTHON) -m twine check --strict dist/*

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

benchmarks:
	$(PYTHON) benchmarks/run.py

# all that takes a machine with a GPU: every test there, those that compute on it, and a page
gpu:
	@$(PYTHON) -c "import sys, torch; torch.cuda.is_available() or sys.exit('make gpu: torch sees no GPU; a machine with one, and the torch build for its CUDA version, would do')"
	$(PYTHON) -m pytest -m "not gpu"
	OTAFL_GPU_TESTS=cuda $(PYTHON) -m pytest -m gpu tests/gpu
	mkdir -p build
	$(PYTHON) benchmarks/gpu.py > build/benchmarks_gpu.md
	mv build/benchmarks_gpu.md results/benchmarks_gpu.md
