# make setup | run [DURATION=seconds] [CONFIG=file] | test [SEED=n] [TURN=n] | test-most | test-optimised | test-spark |
#      test-fast [ROOM=folder] |
#      test-browser | test-exhaustive [SEED=n] [COUNT=n] | test-frames [SEED=n] [COUNT=n] |
#      lint | clean | bench | bench-spark | bench-monitor | soak [SECONDS=n] [RATE=messages a second] |
#      reconcile [SECONDS=n] [LATENCY=drawn|constant]
SHELL := /bin/sh
BIN := .venv/bin
# Tests call make themselves, without the jobs of the make that runs them; processes share what Python compiles.
PYTEST := env -u MAKEFLAGS -u MAKELEVEL -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --no-deps
MYPY := import gc; gc.set_threshold(5_000_000, 1000, 1000); gc.set_threshold = lambda *_: None; \
	from mypy.__main__ import console_entry; console_entry()
# Built without optimising, as pyenv builds them, an interpreter takes a third longer for everything; the system's are not.
OPTIMISED_BUILD := import ensurepip, sys, sysconfig; built = str(sysconfig.get_config_var("CONFIG_ARGS")); \
	sys.exit(sys.base_prefix != "/usr" and "--enable-optimizations" not in built)
STAMP := .venv/.ready
SELDOM := pip|setuptools|mypyc?|pygments/lexers|fontTools|debugpy|pyspark/(ml|mllib|pandas)
CONFIG ?= config.toml
SEED ?= 1
TURN ?= $(SEED)
COUNT ?= 1000
SECONDS ?= 600
RATE ?= 50000
LATENCY ?= drawn
# Where optimising may go wrong, so code is as users have it; the others' code is not optimised.
OPTIMISED := core/test_native*.py engine/test_maps_*.py engine/test_generated_code.py engine/test_recorded_watches.py \
	feeds/test_wire_[lt]*.py run/test_message_loop.py strategies/test_queue_loop.py
# What compiles little: the front end, plans, maps, books, exchanges' protocols; ROOM adds a folder of tests.
FAST := configuration market core/test_[!c]*.py core/test_checked_source.py \
	views/test_frontend_*.py views/test_translate_first_rows.py views/test_translate_values.py \
	views/test_m3_by_hand.py views/test_scalars_functions.py views/test_sql_reference.py views/test_views_golden.py \
	engine/test_blocks.py engine/test_checkpoint_files.py engine/test_engine_*.py engine/test_log.py \
	engine/test_maps_[dh]*.py engine/test_plan_pivots.py engine/test_protocol_[cr]*.py \
	feeds/test_checksums.py feeds/test_exchange_[bok]*.py feeds/test_session.py feeds/test_snapshot_join.py \
	feeds/test_wire_*.py feeds/test_feeds_files_[crs]*.py strategies/test_queue_loop.py \
	strategies/test_strategies.py strategies/test_strategies_[dp]*.py

# Scripts in .venv name the folder they were made in, so a moved checkout needs a new one.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(shell rm -f $(STAMP))
endif

.DEFAULT_GOAL := setup
.PHONY: setup run test test-most test-optimised test-spark test-fast test-browser test-exhaustive test-frames lint clean
.PHONY: bench bench-spark bench-monitor soak reconcile

setup: $(STAMP)

# The pip that comes with Python looks at names of wheels for longer than it installs them, so the locked one comes first.
# pip uses one processor, so two of them install half of what is locked each, and all processors compile it: but for
# packages' own tests, and what is hardly imported, a fourth. A file that is no module, as a template, is left.
$(STAMP): requirements.lock pyproject.toml
	@found=$$(IFS=:; for folder in $$PATH; do \
	  [ -z '$(PYTHON)' ] && "$$folder/python3.11" -c '$(OPTIMISED_BUILD)' 2>/dev/null && echo "$$folder/python3.11" && break; \
	done); \
	[ "$$found" ] || for python in $(PYTHON) python3.11 python3 python3.12 python3.13; do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && found=$$python && break; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Python 3.11 or newer is needed; install it, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	echo "setting up .venv with $$("$$found" --version)"; \
	"$$found" -m venv --clear .venv \
	  || { echo "$$found cannot make a virtual environment (on Debian: apt install python3-venv)" >&2; exit 1; }; \
	$(INSTALL) "$$(grep '^pip==' requirements.lock)" && \
	awk '{ print > (".venv/locked-" NR % 2 ".txt") }' requirements.lock && \
	{ $(INSTALL) -r .venv/locked-0.txt & $(INSTALL) -r .venv/locked-1.txt; code=$$?; wait $$! && [ $$code = 0 ]; } && \
	$(INSTALL) --no-build-isolation -e . && \
	{ said=$$($(BIN)/python -m pip --disable-pip-version-check check) || { echo "$$said" >&2; exit 1; }; } && \
	{ $(BIN)/python -m compileall -qq -j 0 -x 'site-packages/($(SELDOM)|.*/tests?)/' .venv/lib || :; } && \
	printf '%s\n' '$(CURDIR)' > $@

run: $(STAMP)
	@$(BIN)/orderbook run --config '$(CONFIG)' $(if $(DURATION),--duration '$(DURATION)')

# ALSO: further targets, in their turn.
test: $(STAMP)
	@$(MAKE) --no-print-directory --keep-going --jobs=2 test-most test-optimised test-spark $(ALSO)

test-most: $(STAMP)
	@$(PYTEST) -n 2 --dist worksteal --seed $(SEED) --turn $(TURN) -m 'not spark and not browser' $(addprefix --ignore-glob=tests/,$(OPTIMISED)) tests

test-optimised: $(STAMP)
	@said=$$(NUMBA_OPT=3 $(PYTEST) -p no:cacheprovider --seed $(SEED) --turn $(TURN) -m 'not spark' $(wildcard $(addprefix tests/,$(OPTIMISED))) 2>&1); code=$$?; printf '%s\n' "$$said"; exit $$code

# Spark waits more than it computes, so it runs beside the others; what it says is printed at its end.
test-spark: $(STAMP)
	@said=$$($(PYTEST) -p no:cacheprovider --seed $(SEED) --turn $(TURN) -m spark $$(grep -rlE 'mark\.spark' tests --include='test_*.py') 2>&1); code=$$?; printf '%s\n' "$$said"; exit $$code

test-fast: $(STAMP)
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m 'not spark and not browser' $(addprefix tests/,$(FAST) $(ROOM))

# Screenshots go to out/monitor.
test-browser: $(STAMP)
	@$(BIN)/python tests/browser/chromium.py
	@$(BIN)/python -m pytest -q -m browser tests/browser

test-exhaustive: $(STAMP)
	@$(BIN)/python -m pytest -q -m 'not browser' --exhaustive --seed $(SEED) --count $(COUNT) tests

# Spoilt frames through every compiled decoder, and recordings whole.
test-frames: COUNT = 10000
test-frames: $(STAMP)
	@$(BIN)/python -m pytest -q --exhaustive --seed $(SEED) --count $(COUNT) tests/feeds/test_wire_decoders.py

# What mypy holds stays to its end: to look through it for garbage again and again takes a third of its time.
lint: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@report=$$($(BIN)/lint-imports --no-cache --no-logo) || { echo "$$report" >&2; exit 1; }
	@$(BIN)/python -c '$(MYPY)' --no-error-summary

bench: $(STAMP)
	@$(BIN)/python -m benchmarks

bench-spark: $(STAMP)
	@$(BIN)/python -m benchmarks.spark
	@$(BIN)/python -m benchmarks.spark_streaming

bench-monitor: $(STAMP)
	@$(BIN)/python -m benchmarks.monitor
	@$(BIN)/python -m benchmarks.monitor_queries

soak: $(STAMP)
	@$(BIN)/python -m benchmarks.soak --seconds $(SECONDS) --rate $(RATE)

reconcile: $(STAMP)
	@$(BIN)/python -m benchmarks.reconciliation --seconds $(SECONDS) --latency $(LATENCY)

clean:
	@rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
