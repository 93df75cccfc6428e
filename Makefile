# Every command of the project. `make` alone prints this list; hooks and CI call the same targets.
#
# Variables: MODEL, ROUNDS      passed on to `lakeloop quickstart`
#            PYTEST_ARGS        passed on to pytest, e.g. PYTEST_ARGS="tests/lakehouse -m 'not engine'"; -n 0 is one process
#            PYTHON             a Python 3.11 that is not on PATH
#            PIP_FIND_LINKS     folders with wheels on this machine's disk
#            TORCH_INDEX        the index that serves PyTorch's CPU wheels, where the default one does not
#            ENGINE=no          do not install the CPU engine (one that runs elsewhere is adopted by URL)

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
unexport PYTHONDONTWRITEBYTECODE # else each of the thousand processes of a test run compiles our modules anew
.PHONY: help quickstart test install install-engine install-clients install-camel install-verl system boxes up down lint types contracts format lock clean

BIN := .venv/bin
CODE := flows tasks sandboxes lakehouse
INSTALL := deploy/install

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: install install-engine ## Run the whole loop once: install, start the stack, train, show the curve (MODEL=, ROUNDS=)
	@$(INSTALL)/system.sh --optional
	@$(INSTALL)/boxes.sh
	@LAKELOOP_INSTALL_SECONDS=$$(cat .venv-tools/seconds/* 2>/dev/null | awk '{s += $$1} END {print s + 0}') \
	  $(BIN)/lakeloop quickstart $(if $(MODEL),--model $(MODEL)) $(if $(ROUNDS),--rounds $(ROUNDS))

test: install install-engine install-clients ## Run the tests, installing first what they need (PYTEST_ARGS=)
	@$(INSTALL)/system.sh --optional
	@$(INSTALL)/boxes.sh --optional
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)

install: ## Make the pipeline's environment, .venv, from the lock
	@$(INSTALL)/pipeline.sh

install-engine: ## Make the CPU engine's environment, .venv-engine, from the lock
	@$(INSTALL)/engine.sh

install-clients: ## Make the client packages' environment, .venv-clients, from the lock: for tests and docs/examples
	@$(INSTALL)/clients.sh

install-camel: ## Make CAMEL's environment, .venv-camel, from the lock: its test is skipped without
	@$(INSTALL)/camel.sh

install-verl: ## Make verl's environment, .venv-verl, from the lock: the test that it reads exported files is skipped without
	@$(INSTALL)/verl.sh

system: ## Install Docker, bubblewrap, mmdebstrap and tini with apt-get, as root
	@$(INSTALL)/system.sh

boxes: install system ## Make the root file system of the boxes now, so that no episode waits for it
	@$(INSTALL)/boxes.sh

up: install install-engine ## Start Prefect, MLflow, the engine and the gateway
	@$(BIN)/lakeloop up

down: ## Stop what `make up` started
	@$(BIN)/lakeloop down

lint: install ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install ## Check types, strictly
	$(BIN)/mypy

contracts: install ## Check which module may import which
	$(BIN)/lint-imports

format: install ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lock: ## Resolve deploy/requirements/*.in into the locks again
	@$(INSTALL)/lock.sh

clean: ## Remove environments and tool caches; the home folder .lakeloop/ stays
	rm -rf .venv .venv-engine .venv-clients .venv-camel .venv-verl .venv-tools .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) tests -name __pycache__ -type d -prune -exec rm -rf {} +
