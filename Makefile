# `make help` prints this file's commands. What CI runs is `make check` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEEDS ?= 2000

.DEFAULT_GOAL := help
.PHONY: help demo test check bench soak serve format engines lock clean

help: ## Print the commands
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(VENV)/.runtime ## Make an environment and show the main job: some companies, failures, a summary
	$(BIN)/staffetta demo

serve: $(VENV)/.runtime ## API and all stages on the settings in force (staffetta.toml, environment)
	$(BIN)/staffetta serve

test: $(VENV)/.dev engines ## Install what the tests need and run them all
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not soak" $(ARGS)

check: $(VENV)/.dev ## Format, lint, strict types (the rooms are kept by tests/rooms)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

soak: $(VENV)/.dev engines ## The long fault, crash and simulation runs
	STAFFETTA_SEEDS=$(SEEDS) $(BIN)/python -m pytest -m soak --timeout 3600 $(ARGS)

bench: $(VENV)/.dev engines ## Measure: the tables of benchmarks/, with the machine's own ceilings
	$(BIN)/python -m benchmarks $(ARGS)

format: $(VENV)/.dev ## Put the code in the house's form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

engines: ## Install the real servers that the tests start (Debian, root), or say which are missing
	@sh scripts/engines.sh

lock: ## Write the pinned requirements anew (needs `uv`)
	uv pip compile pyproject.toml $(LOCK) -q -o requirements.lock
	uv pip compile pyproject.toml --extra all --group dev $(LOCK) -q -o requirements-dev.lock

LOCK := --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate

clean: ## Remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Staffetta needs Python 3.11 or later; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "This Python cannot make environments; on Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/.runtime: $(VENV)/bin/python requirements.lock pyproject.toml
	@test -e $(VENV)/.dev || { echo "Installing Staffetta into $(VENV) (once; some 20 seconds) …"; \
		$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements.lock; }
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python requirements-dev.lock pyproject.toml
	@echo "Installing the development tools into $(VENV) …"
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@ $(VENV)/.runtime
