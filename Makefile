# Every command sets up what it needs first, and does nothing twice.
#   make demo                     the main job, on embedded defaults
#   make test ROOM=storage        the tests of one room; without Java where it needs none
#   make test ARGS="-k lease"     anything in ARGS goes to pytest
#   make bench ONLY=log-load
#   make peers ARGS='-m "peers and stress"'   the long tests beside peers

PYTHON ?= python3
ARGS ?=
ONLY ?=
ROOM ?=

PY := .venv/bin/python
# Java, for the commands that start Spark.
RUN := . ./.venv/lakeseal-env.sh && $(PY)
PYTEST := $(RUN) -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format docs sbom bench stress trust peers bench-peers clean python packages runtime classes

help:
	@echo "make demo         the main job, on embedded defaults"
	@echo "make test         the tests (needs PyPI only); ROOM=storage for those of one room"
	@echo "make check        ruff, mypy and the order of the rooms"
	@echo "make bench        time and memory, beside the peers from PyPI, in figures under docs/bench; ONLY=log-load for one"
	@echo "make stress       the long tests"
	@echo "make trust        what shows that it can be relied on, in figures under docs/trust; ONLY=mutants for one part"
	@echo "make peers        the tests beside Delta Spark, Kafka and lakeFS; needs Maven Central and Go"
	@echo "make bench-peers  the benchmarks beside Delta Spark; needs Maven Central"
	@echo "make setup        only what the others need: .venv, packages, Java"
	@echo "make format       mend what ruff can mend"
	@echo "make docs         the pages that are made from the code, and all of them as a site in build/site; read without a network"
	@echo "make sbom         what a release consists of, in CycloneDX's format, in build/sbom.json"
	@echo "make clean        remove what the commands made, .venv and .venv-peers too"

python:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: install it, or name it, as in make demo PYTHON=/opt/python/bin/python3" >&2; exit 1; }

packages: python
	@$(PYTHON) scripts/setup.py --no-java

setup: python
	@$(PYTHON) scripts/setup.py

classes: setup
	@export JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" && $(RUN) scripts/spark_classes.py $(CLASSES)

runtime: python
	@$(PYTHON) scripts/setup.py --extras spark,server

demo: runtime
	@$(RUN) -m lakeseal demo $(ARGS)

# Three parts beside each other: tests that share one Spark session, those that start Spark by themselves, and those
# without Spark in six processes, since tests wait for half of their time: for other processes, servers and their own
# patience. Spark's parts are the longer ones and go first where all want the same core. What they said comes at the
# end. All parts are always run. pytest's exit code 5 says that ARGS left no test over in a part.
# Files are written to memory where there is room: tests kill processes, not machines, so nothing is gained by waiting for
# a disk. JVMs that live for seconds compile once, and find Spark's classes in an archive: without the second compiler and
# the parallel collector they take a fifth to a third less CPU, with the archive half of the rest. Hundreds of short
# processes import Lakeseal, so its bytecode is kept whatever the user says.
SCRATCH := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 { print "/dev/shm" }')
TESTS := $(if $(ROOM),tests/$(ROOM))
# Only the files that have such tests are loaded for them, unless ARGS names others.
WITH_SPARK := $(shell grep -rlE "mark\.(spark|own_spark)" tests/$(ROOM) --include=*.py | grep -v tests/peers/ | sort)
OWN_SPARK := $(shell grep -rl "mark\.own_spark" tests/$(ROOM) --include=*.py | grep -v tests/peers/ | sort)
CLASSES := $(CURDIR)/.venv/spark-classes.jsa
SHORT := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:SharedArchiveFile=$(CLASSES) -Xlog:disable -Xlog:all=error:stderr
test: $(if $(WITH_SPARK),classes,packages)
	@scratch=$$(mktemp -d $(if $(SCRATCH),-p $(SCRATCH))); failed=0; parts=; \
	trap 'kill $$parts 2>/dev/null; wait; rm -rf $$scratch' EXIT; trap 'exit 130' INT TERM; \
	export JAVA_TOOL_OPTIONS="$(SHORT)" PYTHONDONTWRITEBYTECODE=; \
	beside() { $(PY) -m pytest -m "$$2 and not stress and not peers" --basetemp=$$scratch/$$1 $(if $(findstring tests/,$(ARGS)),$(TESTS),$$3) $(ARGS) >$$scratch/$$1.said 2>&1 & parts="$$parts $$!"; }; \
	if [ -n "$(WITH_SPARK)" ]; then . ./.venv/lakeseal-env.sh; beside shared "spark and not own_spark" "$(WITH_SPARK)"; fi; \
	if [ -n "$(OWN_SPARK)" ]; then beside own own_spark "$(OWN_SPARK)"; fi; \
	nice -n 5 $(PY) -m pytest -m "not spark and not stress and not peers" -n 6 --dist worksteal --basetemp=$$scratch/plain $(TESTS) $(ARGS) || [ $$? -eq 5 ] || failed=1; \
	for part in $$parts; do wait $$part || [ $$? -eq 5 ] || failed=1; done; parts=; \
	for said in $$scratch/*.said; do [ ! -e $$said ] || cat $$said; done; \
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
	@$(PY) scripts/error_docs.py && $(PY) scripts/reference_docs.py
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet && echo "build/site; to read it with search: python3 -m http.server -d build/site"

sbom: packages
	@$(PY) scripts/sbom.py build/sbom.json

bench: setup
	@$(RUN) bench/run.py $(ONLY) $(ARGS)

# The long tests, and property tests in their long form, with new examples.
stress: setup
	@export HYPOTHESIS_PROFILE=explore && $(PYTEST) -m "(stress or hypothesis) and not peers" $(ARGS) || [ $$? -eq 5 ]

trust: setup
	@$(RUN) trust/run.py $(ONLY) $(ARGS)

peers: setup
	@$(RUN) scripts/peers.py && $(PYTEST) -m "peers and not stress" $(ARGS) || [ $$? -eq 5 ]

bench-peers: setup
	@$(RUN) scripts/peers.py && export LAKESEAL_BENCH_PEERS=1 && $(RUN) bench/run.py $(ONLY) $(ARGS)

clean:
	@rm -rf .venv .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
