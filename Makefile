# make demo   train briefly, extract, analyse: the whole pipeline on the real game, a few minutes
# make test   the tests, on all cores, but for the slow ones
# make test-slow  the slow tests: runs of several processes that take minutes
# make lint   ruff and mypy
# make setup  only what the others need: uv if it is not on PATH, and the project's environment in .venv/
# make browser  Chromium for tests of pages, where it is missing and can be installed; without it they are skipped
# make clean  remove the environment and the demo

SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: setup demo test test-slow lint browser clean

UV_VERSION := 0.13.8
# The first interpreter that runs and is of a supported version; a shim on PATH may not run.
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3 python; do \
	$$candidate -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null \
	&& { $$candidate -c 'import sys; print(sys.executable)'; break; }; done)
UV := $(shell command -v uv || echo .uv/bin/uv)
# uv has its own name for the folders of local wheels that pip is told of.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_PYTHON_DOWNLOADS := never
RUN := .venv/bin/python

DEMO := demo
DEMO_NAME := demo_start_kit

setup: .venv/.ready

.venv/.ready: pyproject.toml | $(filter .uv/%,$(UV))
	@test -n "$(PYTHON)" || { echo "error: Python 3.11 or 3.12 with venv is needed; name one: make PYTHON=/path/to/python"; exit 2; }
	$(UV) sync --quiet --all-extras --python "$(PYTHON)"
	@touch $@

.uv/bin/uv:
	@test -n "$(PYTHON)" || { echo "error: Python 3.11 or 3.12 with venv is needed; name one: make PYTHON=/path/to/python"; exit 2; }
	"$(PYTHON)" -m venv .uv
	.uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

demo: setup
	@rm -rf $(DEMO)
	$(RUN) train.py --debug --no-track -n $(DEMO_NAME) --policies-dir $(DEMO)/policies --runs-dir $(DEMO)/runs \
		--env.num-agents 64 --env.map-size 64 --train.total-agent-steps 65_536 --train.learning-rate 5e-4
	$(RUN) extract_activations.py pve -p $(DEMO_NAME) -n 2 --policies-dir $(DEMO)/policies -o $(DEMO)/activation_data
	$(RUN) analyze_activations.py $(DEMO)/activation_data/$(DEMO_NAME) --subsample 2 \
		--hdbscan-min-cluster 60 --output-dir $(DEMO)/analysis_results

test: setup
	$(RUN) -m pytest -n auto --dist worksteal -m "not slow"

test-slow: setup
	$(RUN) -m pytest -n auto --dist worksteal -m slow

lint: setup
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy .

browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

clean:
	rm -rf .venv .uv uv.lock $(DEMO)
