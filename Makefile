# Everything sets itself up: a virtual environment in the checkout, made once, remade when the pins
# change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
# Unit tests run in parallel as pytest processes with files of their own, the largest files dealt
# out first. Workers of pytest-xdist would each collect all tests, a quarter of the CPU time.
SHARDS := 1 2 3 4
SHARD = $$(ls -S $$($(1)) | awk 'NR % $(words $(2)) == $* % $(words $(2))')
SOME_PROCESS := grep -rlE --include='test_*.py' 'mark\.process' tests
NOT_ALL_PROCESS := grep -rLE --include='test_*.py' '^pytestmark = .*mark\.process' tests
PILOT := $(NOT_ALL_PROCESS) | grep '^tests/pilot/'
NOT_PILOT := $(NOT_ALL_PROCESS) | grep -v '^tests/pilot/'
UNIT := find tests/unit tests/guards -name 'test_*.py'
BENCHES := first_use console proxy_cost telemetry rewards verdict engine learning rating journal_size peers
# Compiled files are kept, whatever the environment says: each worker of the tests and each process
# they start would else compile all sources anew. The setup makes them, and the character tables of
# Hypothesis: the workers begin together, and each would make its own, for 2 to 4 s of CPU time.
SOURCES := ajet_swarm bench console core docs engine examples mock proxy tests/support
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test test-torch web-test check lint types unit bench pictures reference simulate soak examples example-persona example-math format clean

run: $(READY)
	@$(BIN)/ajet-console $(ARGS)

# The tests that start processes run in two streams. All others run beside them and give way: those
# of the pilot, which need no server, and the rest, which wait for three quarters of their time. Each
# part imports what its tests use, for 2 to 5 s of CPU time: so they are few.
STREAMS := 1 2
PILOTS := 1 2
GIVE_WAY := nice -n 10
PARTS := 1 2 3 4
test: $(READY)
	@$(MAKE) --no-print-directory -k -j 8 \
	  $(STREAMS:%=process-%) $(PILOTS:%=pilot-%) $(PARTS:%=beside-%)

pilot-%: $(READY)
	@$(GIVE_WAY) $(PYTEST) -q -m "not process and not soak" $(call SHARD,$(PILOT),$(PILOTS))

beside-%: $(READY)
	@$(GIVE_WAY) $(PYTEST) -q -m "not process and not soak" $(call SHARD,$(NOT_PILOT),$(PARTS))

process-%: $(READY)
	@$(PYTEST) -q -m "process and not soak" $(call SHARD,$(SOME_PROCESS),$(STREAMS))

check: $(READY)
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory -j types unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

# More processes than cores: half of what a test takes is waiting.
unit: $(SHARDS:%=unit-%)

unit-%: $(READY)
	@$(PYTEST) -q -m "not process and not soak and not slow" $(call SHARD,$(UNIT),$(SHARDS))

# The request path in memory, see docs/contributing/simulation.md.
SEEDS := 1000
simulate: $(READY)
	@$(BIN)/python -m tests.simulation seeds 0 $(SEEDS)

soak: $(READY)
	$(PYTEST) -q -m soak --timeout 3600
	@$(MAKE) --no-print-directory -j $(SHARDS:%=long-%)

long-%: $(READY)
	@$(PYTEST) -q -m "hypothesis and not soak" --hypothesis-profile long --timeout 3600 \
	  $(call SHARD,$(NOT_ALL_PROCESS),$(SHARDS))

# The torch backend and TRL's own readers of the exports, in an environment of its own: several
# gigabytes.
TORCH := .venv-torch
test-torch: $(TORCH)/.ready
	$(TORCH)/bin/python -m pytest -q -m torch -W default tests/torch

$(TORCH)/.ready: constraints.txt constraints-torch.txt pyproject.toml
	@echo "Setting up $(TORCH) (once; some minutes)"
	@rm -rf $(TORCH)
	@$(PYTHON) -m venv $(TORCH)
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -c constraints-torch.txt torch
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -c constraints-torch.txt -e '.[dev,torch-test]'
	@touch $@

# The console in Chromium; skipped where there is none. WEB_PICTURE=FILE also writes a picture.
web-test: $(READY)
	$(PYTEST) -q -s tests/e2e/browser/test_chromium.py

bench: $(READY)
	@failed=; for bench in $(BENCHES); do \
	  echo "== $$bench"; $(BIN)/python -m bench.$$bench || failed="$$failed $$bench"; \
	done; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# Every screen and the animated loop, from a real run.
pictures: $(READY)
	@$(BIN)/python -m docs.pictures $(ARGS)

# docs/library/reference (not in git), from the docstrings of ajet_swarm/; docs/settings.md.
reference: $(READY)
	@$(BIN)/python -m docs.reference
	@$(BIN)/python -m docs.settings

# The tutorials of docs/guide/tutorials.md: each trains and ends by itself, under a minute on quiet cores.
examples: example-persona example-math

example-persona example-math: example-%: $(READY)
	@$(BIN)/python -m examples.$* $(ARGS)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(TORCH) build dist *.egg-info

$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "ajet-console needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
	       "Name another with: make PYTHON=python3.12 run"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "Python's venv module is missing (on Debian and Ubuntu: apt install python3-venv)."; \
	  exit 2; }
	@echo "Setting up $(VENV) (once; about a minute): 1 of 3, the environment"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@echo "2 of 3, the packages"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@echo "3 of 3, compiled files"
	@$(BIN)/python -m compileall -q -x '^examples/hooks/' $(SOURCES)
	@$(BIN)/python -c 'from hypothesis import strategies; strategies.text().validate()'
	@touch $(READY)
