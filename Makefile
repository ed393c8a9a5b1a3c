# make demo   the whole pipeline on the real game in a few minutes: train briefly, then record, analyse and draw a
#             shipped policy; ends with the pages to open
# make study  all studies in studies/: from the shipped policies to pages in docs/findings/, in about three hours on two cores
# make test   the tests, on all cores, except the slow ones
# make test-slow  the slow tests: runs of several processes that take minutes
# make soak   an hour each of extraction, evaluation and training, whose memory must not grow
# make lint   ruff and mypy
# make setup  what the demo and all scripts need: uv if it is not on PATH, and the project's environment in .venv/
# make setup-all  the optional parts (Ray, curricula, language models) and the tools of tests and lint as well
# make browser  Chromium for tests of pages, where it is missing and can be installed; without it they are skipped
# make clean  remove the environment and the demo

SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: setup setup-all demo study test test-slow soak lint browser clean

UV_VERSION := 0.13.8
# The first interpreter that runs and is of a supported version; a shim on PATH may not run.
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3 python; do \
	$$candidate -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null \
	&& { $$candidate -c 'import sys; print(sys.executable)'; break; }; done)
UV := $(shell command -v uv || echo .uv/bin/uv)
# uv has its own name for pip's setting of folders with local wheels.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_PYTHON_DOWNLOADS := never
# Scripts start in half the time where the libraries are compiled once, at set-up.
export UV_COMPILE_BYTECODE := 1
RUN := .venv/bin/python
# Each file of tests stays on one worker, which makes its fixtures once; tests/conftest.py puts the longest files first.
BY_FILE := --dist loadfile --no-loadscope-reorder
# One worker more than cores, since tests wait for processes and pages.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
check-python = @test -n "$(PYTHON)" || { \
	echo "error: Python 3.11 or 3.12 with venv is needed; name one: make PYTHON=/path/to/python"; exit 2; }

# Without a compiler it prints a line, and the game runs as plain Python. An image gets the environment before the sources.
COMPILED := reinforcement_learning/compiled_game.py
compile-game = @test ! -e $(COMPILED) || $(RUN) -m $(subst /,.,$(COMPILED:.py=))

DEMO := demo
DEMO_POLICY := start_kit_3M
DEMO_DUMP := $(DEMO)/activation_data/$(DEMO_POLICY)

setup: .venv/.ready

setup-all: .venv/.ready-all

# Inexact: what `make setup-all` installed before stays.
.venv/.ready: pyproject.toml | $(filter .uv/%,$(UV))
	$(check-python)
	$(UV) sync --quiet --inexact --no-group dev --python "$(PYTHON)"
	$(compile-game)
	@touch $@

.venv/.ready-all: pyproject.toml | $(filter .uv/%,$(UV))
	$(check-python)
	$(UV) sync --quiet --all-extras --python "$(PYTHON)"
	$(compile-game)
	@touch .venv/.ready $@

.uv/bin/uv:
	$(check-python)
	"$(PYTHON)" -m venv .uv
	.uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

demo: setup
	@rm -rf $(DEMO)
	@echo "1/5 A short training, to show that it works; the policy is not used below."
	$(RUN) train.py --debug --no-track -n short_training --policies-dir $(DEMO)/policies --runs-dir $(DEMO)/runs
	@echo "2/5 Recording two episodes of the shipped policy $(DEMO_POLICY), 128 agents each."
	$(RUN) extract_activations.py pve -p $(DEMO_POLICY) -n 2 --max-steps 300 --format parquet -o $(DEMO)/activation_data
	@echo "3/5 Clustering the hidden states, and testing which behaviours the clusters are associated with."
	$(RUN) analyze_activations.py $(DEMO_DUMP) --subsample 20 --output-dir $(DEMO)/analysis_results
	@echo "4/5 The explorer page."
	$(RUN) explore.py $(DEMO)/analysis_results/*
	@echo "5/5 One agent's life."
	$(RUN) agent_life_visualization.py $(DEMO_DUMP) --cluster-dir $(DEMO)/analysis_results/* \
		--output-dir $(DEMO)/agent_plots
	@echo; echo "Open these in a browser or an image viewer:"
	@echo "  explorer  $$(echo $(DEMO)/analysis_results/*/explorer.html)"
	@echo "  report    $$(echo $(DEMO)/analysis_results/*/report.html)"
	@echo "  one life  $$(echo $(DEMO)/agent_plots/*/life_*.png)"

study: setup
	@for each in studies/*.yaml; do $(RUN) study.py $$each || exit; done

test: setup-all
	$(RUN) -m pytest -n $(WORKERS) $(BY_FILE) -m "not slow"

test-slow: setup-all
	$(RUN) -m pytest -n auto $(BY_FILE) -m slow

soak: setup-all
	NMMO_SOAK_MINUTES=60 $(RUN) -m pytest -n 0 -s tests/test_soak.py

lint: setup-all
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy .

browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

clean:
	rm -rf .venv .uv uv.lock $(DEMO)
