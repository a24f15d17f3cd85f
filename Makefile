# Every command sets up what it needs first, and does nothing twice.
#   make demo                     the main job, on embedded defaults
#   make test ROOM=storage        the tests of one room; without Java where it needs none
#   make test ARGS="-k lease"     anything in ARGS goes to pytest
#   make bench ONLY=log-load

PYTHON ?= python3
ARGS ?=
ONLY ?=
ROOM ?=

PY := .venv/bin/python
# Java, for the commands that start Spark.
RUN := . ./.venv/lakeseal-env.sh && $(PY)
PYTEST := $(RUN) -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format docs bench stress peers bench-peers clean python packages runtime

help:
	@echo "make demo         the main job, on embedded defaults"
	@echo "make test         the tests (needs PyPI only); ROOM=storage for those of one room"
	@echo "make check        ruff, mypy and the order of the rooms"
	@echo "make bench        time and memory, beside the peers from PyPI; ONLY=log-load for one"
	@echo "make stress       the long tests"
	@echo "make peers        the tests beside Delta Spark, Kafka and lakeFS; needs Maven Central and Go"
	@echo "make bench-peers  the benchmarks beside Delta Spark; needs Maven Central"
	@echo "make setup        only what the others need: .venv, packages, Java"
	@echo "make format       mend what ruff can mend"
	@echo "make docs         write again the pages that are made from the code"
	@echo "make clean        remove what the commands made, .venv and .venv-peers too"

python:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: install it, or name it, as in make demo PYTHON=/opt/python/bin/python3" >&2; exit 1; }

packages: python
	@$(PYTHON) scripts/setup.py --no-java

setup: python
	@$(PYTHON) scripts/setup.py

runtime: python
	@$(PYTHON) scripts/setup.py --extras spark,server

demo: runtime
	@$(RUN) -m lakeseal demo $(ARGS)

# Spark's tests share one session, so they run in one process, and those that start Spark by themselves in another beside
# it, whose words come at the end; the others, before them, take two processes. All parts are always run. pytest's exit
# code 5 says that ARGS left no test over in a part. Files are written to memory where there is room: tests kill
# processes, not machines, so nothing is gained by waiting for a disk. JVMs that live for seconds compile once: without
# the second compiler and the parallel collector they take a fifth to a third less CPU.
SCRATCH := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 { print "/dev/shm" }')
TESTS := $(if $(ROOM),tests/$(ROOM))
NEEDS_JAVA := $(if $(ROOM),$(shell grep -rlE "mark\.(spark|own_spark)" tests/$(ROOM) --include=*.py),yes)
test: $(if $(NEEDS_JAVA),setup,packages)
	@scratch=$$(mktemp -d $(if $(SCRATCH),-p $(SCRATCH))); failed=0; \
	export JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"; \
	$(if $(NEEDS_JAVA),$(PYTEST),$(PY) -m pytest) -m "not spark and not stress and not peers" -n 2 --dist worksteal --basetemp=$$scratch/plain $(TESTS) $(ARGS) || [ $$? -eq 5 ] || failed=1; \
	if [ -n "$(NEEDS_JAVA)" ]; then \
	$(PYTEST) -m "spark and own_spark and not stress and not peers" --basetemp=$$scratch/own $(TESTS) $(ARGS) >$$scratch/said 2>&1 & own=$$!; \
	$(PYTEST) -m "spark and not own_spark and not stress and not peers" --basetemp=$$scratch/shared $(TESTS) $(ARGS) || [ $$? -eq 5 ] || failed=1; \
	wait $$own || [ $$? -eq 5 ] || failed=1; \
	cat $$scratch/said; fi; rm -rf $$scratch; \
	exit $$failed

check: packages
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports

format: packages
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

docs: packages
	@$(PY) scripts/error_docs.py

bench: setup
	@$(RUN) bench/run.py $(ONLY) $(ARGS)

stress: setup
	@$(PYTEST) -m "stress and not peers" $(ARGS) || [ $$? -eq 5 ]

peers: setup
	@$(RUN) scripts/peers.py && $(PYTEST) -m peers $(ARGS) || [ $$? -eq 5 ]

bench-peers: setup
	@$(RUN) scripts/peers.py && export LAKESEAL_BENCH_PEERS=1 && $(RUN) bench/run.py $(ONLY) $(ARGS)

clean:
	@rm -rf .venv .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/results build dist
