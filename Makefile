# `make run` and `make test` need no other setup: both create the environment first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PRESET ?= demo

.DEFAULT_GOAL := help
.PHONY: help run tiny test test-unit test-integration test-slow fuzz torture bench check format ui server clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=24"
	@echo "installing packages: about 6 GB with torch's CUDA libraries, 3 to 10 minutes the first time"
	$(BIN)/python -m pip install --disable-pip-version-check -e ".[dev]"
	@touch $(STAMP)

run: $(STAMP) ## Train the demo: six simulated sites, one classifier (about 5 minutes)
	@PATH="$(CURDIR)/$(BIN):$$PATH" fedscene pipeline --preset $(PRESET)

tiny: $(STAMP) ## Train a tiny run in seconds, without DVC or Prefect
	@$(BIN)/fedscene run --preset tiny

PYTEST = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -n 2 --dist worksteal

test: $(STAMP) ## Run all tests (about 7 minutes on two cores)
	@$(PYTEST) $(ARGS)

test-unit: $(STAMP) ## Run the tests that need no server, no other process and no whole run (about 90 seconds)
	@$(PYTEST) -m "not integration and not slow" $(ARGS)

test-integration: $(STAMP) ## Run the tests that need Prefect, DVC, MLflow or another process
	@$(PYTEST) -m integration $(ARGS)

test-slow: $(STAMP) ## Run the tests of whole runs and of every setting
	@$(PYTEST) -m slow $(ARGS)

fuzz: $(STAMP) ## Feed damaged inputs to the readers (ARGS="--kind images --count 20000")
	@PYTHONPATH="$(CURDIR)" $(BIN)/python tests/fuzz $(ARGS)

torture: $(STAMP) ## Kill a run at each of its events and start it again, about half an hour (ARGS="--sample 6")
	@PYTHONPATH="$(CURDIR)" $(BIN)/python tests/torture $(ARGS)

bench: $(STAMP) ## Compare speed with hand-written loops, Flower and pfl, up to an hour (ARGS="--only pfl-mini --repeats 3")
	@PYTHONPATH="$(CURDIR)" $(BIN)/python -m benchmarks $(ARGS)

check: $(STAMP) ## Lint, types, import contracts, file sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@long=$$(git ls-files '*.py' | xargs wc -l | awk '$$2 != "total" && $$1 > 300'); \
	if [ -n "$$long" ]; then echo "files over 300 lines:"; echo "$$long"; exit 1; fi

format: $(STAMP) ## Format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

ui: $(STAMP) ## Open the MLflow UI on http://127.0.0.1:5000
	@runs="$${FEDSCENE_RUNS:-$(CURDIR)/runs}"; \
	MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(BIN)/mlflow ui --workers 1 \
	  --backend-store-uri "sqlite:///$$runs/mlflow.db" --host 127.0.0.1 --port 5000

server: $(STAMP) ## Start a Prefect server on http://127.0.0.1:4200
	@DO_NOT_TRACK=1 $(BIN)/prefect server start --host 127.0.0.1

clean: ## Remove caches; keep data, runs and the environment
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build ./*.egg-info
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -not -path './.venv-bench/*' -prune -exec rm -rf {} +
