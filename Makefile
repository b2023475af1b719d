# Everything sets itself up: a virtual environment in the checkout, made once, remade when the pins
# change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest

.PHONY: run test check unit process bench soak format clean

run: $(READY)
	@$(BIN)/ajet-console $(ARGS)

test: $(READY)
	$(PYTEST) -q -n 2 -m "not process and not soak"
	$(PYTEST) -q -m "process and not soak"

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -q -n 2 tests/unit tests/guards -m "not process and not soak"

process: $(READY)
	$(PYTEST) -q -m "process and not soak"

soak: $(READY)
	$(PYTEST) -q -m soak --timeout 3600

bench: $(READY)
	@for one in first_use timelines engine by_hand learning; do echo "== $$one"; $(BIN)/python -m bench.$$one || exit 1; done

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info

$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "ajet-console needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
	       "Name another with: make PYTHON=python3.12 run"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "Python's venv module is missing (on Debian and Ubuntu: apt install python3-venv)."; \
	  exit 2; }
	@echo "Setting up $(VENV) (once; about a minute)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)
