# Development tasks; PYTHON is the interpreter that otafl[dev] is installed for.
PYTHON ?= .venv/bin/python

.PHONY: help check lint style types test test-slow test-rounding test-all docs package format benchmarks gpu

help: ## List the targets, which is what make does without one
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

check: lint types test ## Lint, check types and run the fast tests

lint: style ## Check style, format, the order of layers, and docstrings
	$(PYTHON) -m pytest -n 0 tests/golden/test_docstrings.py

style: ## Check style, format and the order of layers
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(dir $(PYTHON))lint-imports

types: ## Check types
	$(PYTHON) -m mypy

test: ## Run the fast tests
	$(PYTHON) -m pytest

test-slow: ## Run the slow tests on a worker more, since many wait; those of absent extras are skipped
	$(PYTHON) -m pytest -m slow -n 3

test-rounding: ## Run the fast tests of what computes as on an older processor, and a part without Numba
	set -a && . studies/common/second_arithmetic.env && $(PYTHON) -m pytest \
	  $(addprefix tests/,models uplink codecs engine algorithms)
	OTAFL_TEST_WITHOUT_NUMBA=1 $(PYTHON) -m pytest tests/core/test_rng.py tests/codecs tests/engine

test-all: test test-slow ## Run the fast and the slow tests

docs: ## Build the site into build/docs
	$(PYTHON) -m sphinx -W --keep-going -q $(SPHINXOPTS) -b html docs build/docs

package: ## Build wheel and sdist into dist/ and check them
	rm -rf dist
	$(PYTHON) -m build --no-isolation
	$(PYTHON) -m twine check --strict dist/*

format: ## Format the code, and mend what lint can mend
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

benchmarks: ## Measure speed
	$(PYTHON) benchmarks/run.py

gpu: ## Run all tests on a machine with a GPU, and measure its speed
	@$(PYTHON) -c "import sys, torch; torch.cuda.is_available() or sys.exit('make gpu: torch sees no GPU; a machine with one, and the torch build for its CUDA version, would do')"
	$(PYTHON) -m pytest -m "not gpu"
	OTAFL_GPU_TESTS=cuda $(PYTHON) -m pytest -m gpu tests/gpu
	mkdir -p build
	$(PYTHON) benchmarks/gpu.py > build/gpu.md
	mv build/gpu.md benchmarks/gpu.md
