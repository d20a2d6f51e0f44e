.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# for two cores: many tests wait for a process most of their time
TEST_WORKERS ?= 3

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "installing torch, Triton and the rest in $(VENV); some minutes, once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[service,kernels,dev]'
	touch $@

setup: $(VENV)/.ready ## create the virtual environment with all that development needs

demo: setup ## submit HEAD to a service started here and show the result; needs no GPU
	$(BIN)/python -m gdn_service.demo

lint: setup ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## lint and run every test
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

test-docker: setup ## the container tests alone, with a real engine (started here where none runs)
	$(BIN)/python -m pytest tests/unit/service/test_container.py tests/integration/docker

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

.PHONY: help setup demo lint test test-docker clean
