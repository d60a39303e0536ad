# Everything a checkout needs. The first run makes a virtual environment; later runs reuse it.
#   make test PYTHON=python3.12 VENV=build/py312    another interpreter, in its own environment

VENV   ?= .venv
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
STAMP  := $(VENV)/.installed
BIN    := $(VENV)/bin

# A worker for each core; the long tests are handed out as workers become free.
EVERY_CORE := -n auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help certify test full lint types imports docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

certify: $(STAMP) ## Certify the built-in SQLite store on a temporary file
	@$(BIN)/dendrux certify sqlite

test: $(STAMP) lint types ## Run the whole suite: lint, types, and all tests against every database found
	@$(BIN)/python -m pytest $(EVERY_CORE) $(ARGS)

full: $(STAMP) lint types ## Run the whole suite with large budgets, and every cell of the pair matrix
	@DENDRUX_BUDGET=full $(BIN)/python -m pytest $(EVERY_CORE) $(ARGS)
	@$(BIN)/dendrux certify sqlite --matrix all --examples 500

lint: $(STAMP) ## Check style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }

types: $(STAMP) ## Check types, strictly
	@$(BIN)/mypy

imports: $(STAMP) ## Check which package may import which
	@$(BIN)/lint-imports

docs: $(STAMP) ## Build the documentation into build/site
	@$(BIN)/mkdocs build --strict

clean: ## Remove the environment and everything built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# An environment whose interpreter is gone, or that was made in another folder, is made again.
ifneq ($(shell $(BIN)/python -c 'import _dendrux_pytest' 2>/dev/null && echo usable),usable)
.PHONY: $(STAMP)
endif

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "missing: Python 3.11 or later (or name one: make PYTHON=path/to/python)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "missing: Python 3.11 or later; '$(PYTHON)' is not one that runs" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "missing: the venv module of $(PYTHON) (Debian and Ubuntu: the package python3-venv)" >&2; exit 1; }
	@echo "installing into $(VENV) (once)"
	@$(BIN)/python -c 'import _dendrux_pytest' 2>/dev/null || "$(PYTHON)" -m venv --clear $(VENV)
	@{ $(BIN)/python -m pip install -qq --upgrade "pip>=25.1" \
		&& $(BIN)/python -m pip install -qq --editable ".[all]" --group dev; } \
		|| { echo "missing: packages that pip could not install (its message is above)" >&2; exit 1; }
	@touch $@
