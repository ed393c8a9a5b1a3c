# make demo   the whole pipeline on the real game in a few minutes: train briefly, then record, analyse and draw a
#             shipped policy; ends with the pages to open
# make study  all studies in studies/: from the shipped policies to pages in docs/findings/, in about 24 hours on two cores;
#             on a Ray cluster: make study STUDY_OPTIONS="--ray-address auto"
# make test   the tests, on all cores, except the slow ones
# make test-slow  the slow tests: runs of several processes that take minutes
# make test-all   both in one go, which takes less time than one after the other
# make test-readers  whether pandas, polars, DuckDB, datasets and SAELens read what is written for them; they are installed
#             on top of the environment for this alone
# make soak   an hour each of extraction, evaluation and training, whose memory must not grow
# make lint   ruff and mypy
# make setup  what the demo and all scripts need: uv if it is not on PATH, and the project's environment in .venv/
# make setup-all  the optional parts (Ray, curricula, language models) and the tools of tests and lint as well
# make browser  Chromium for tests of pages, where it is missing and can be installed; without it they are skipped
# make clean  remove the environment and the demo, and say how much each was
# make clean-caches  likewise generated maps, the compiled game and what tools keep; all of it is made again when needed

SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: setup setup-all demo study test test-slow test-all test-readers soak lint browser clean clean-caches

UV_VERSION := 0.13.8
# The first interpreter that runs and is of a supported version; a shim on PATH may not run. Where none is, uv fetches one.
PYTHON ?= $(shell for candidate in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$candidate -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null \
	&& { $$candidate -c 'import sys; print(sys.executable)'; break; }; done)
FETCHED := 3.11
UV := $(shell command -v uv || echo .uv/bin/uv)
# uv has its own name for pip's setting of folders with local wheels.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_PYTHON_DOWNLOADS := $(if $(PYTHON),never,automatic)
# Scripts start in half the time where the libraries are compiled once, at set-up. uv gives each file 60 seconds, which are
# too few on a busy machine.
export UV_COMPILE_BYTECODE := 1
export UV_COMPILE_BYTECODE_TIMEOUT ?= 900
RUN := .venv/bin/python
# Each file of tests stays on one worker, which makes its fixtures once; tests/conftest.py puts the longest files first.
BY_FILE := --dist loadfile --no-loadscope-reorder
# One worker more than cores, since tests wait for processes and pages.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

READERS := pandas==3.1.1 polars==2.1.0 duckdb==2.0.1 datasets==5.2.0 sae-lens==6.54.12
READ := tests/activation_store/exchange/test_export.py::test_other_programs_read_it tests/analysis/sparse/test_outputs.py::test_it_loads_them

# Without a compiler it prints a line, and the game runs as plain Python. An image gets the environment before the sources.
COMPILED := reinforcement_learning/compiled_game.py
compile-game = @test ! -e $(COMPILED) || $(RUN) -m $(subst /,.,$(COMPILED:.py=))

# numba compiles UMAP once, here; otherwise every process that embeds before the first one has ended would do so.
PROJECTION := analysis/clusters/embeddings.py
compile-umap = @test ! -e $(PROJECTION) || $(RUN) -c "import numpy; from analysis.clusters.embeddings import umap_embedding; \
	umap_embedding(numpy.eye(20, dtype=numpy.float32), 5, 0.1, 0)"

DEMO := demo
DEMO_POLICY := start_kit_10M
DEMO_DUMP := $(DEMO)/activation_data/$(DEMO_POLICY)

setup: .venv/.ready

setup-all: .venv/.ready-all

sync = @test -n "$(PYTHON)" || echo "no Python from 3.11 to 3.14 with venv is installed: uv fetches $(FETCHED)"; \
	$(UV) sync --quiet --python "$(or $(PYTHON),$(FETCHED))"

# Scripts find the project also where Python does not look into their folder (PYTHONSAFEPATH).
on-path = @test ! -x $(RUN) || $(RUN) -c "import os, pathlib, sysconfig; \
	pathlib.Path(sysconfig.get_path('purelib'), 'nmmo_interpretability.pth').write_text(os.getcwd() + '\n')"

# Inexact: what `make setup-all` installed before stays.
.venv/.ready: pyproject.toml | $(filter .uv/%,$(UV))
	$(sync) --inexact
	$(on-path)
	$(compile-game)
	$(compile-umap)
	@touch $@

.venv/.ready-all: pyproject.toml | $(filter .uv/%,$(UV))
	$(sync) --all-extras
	$(on-path)
	$(compile-game)
	$(compile-umap)
	@touch .venv/.ready $@

.uv/bin/uv:
	@"$(or $(PYTHON),python3)" -m venv .uv || { rm -rf .uv; echo "error: neither uv nor a Python with venv is installed:" \
		"install uv, which fetches a Python, or name a Python: make PYTHON=/path/to/python"; exit 2; }
	.uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

demo: setup
	@rm -rf $(DEMO)
	@echo "1/5 A short training, to show that it works; the policy is not used below."
	$(RUN) train.py --debug --no-track -n short_training --policies-dir $(DEMO)/policies --runs-dir $(DEMO)/runs
	@echo "2/5 Recording four episodes of the shipped policy $(DEMO_POLICY), 128 agents each, for all analyses."
	$(RUN) extract_activations.py pve -p $(DEMO_POLICY) --record standard -n 4 --max-steps 300 \
		-o $(DEMO)/activation_data
	@echo "3/5 Clustering the hidden states, and testing which behaviours the clusters are associated with."
	$(RUN) analyze_activations.py $(DEMO_DUMP) --subsample 40 --output-dir $(DEMO)/analysis_results
	@echo "4/5 The explorer page."
	$(RUN) explore.py $(DEMO)/analysis_results/*
	@echo "5/5 One agent's life."
	$(RUN) agent_life_visualization.py $(DEMO_DUMP) --cluster-dir $(DEMO)/analysis_results/* \
		--output-dir $(DEMO)/agent_plots
	@echo; echo "Open these in a browser or an image viewer:"
	@echo "  explorer  $$(echo $(DEMO)/analysis_results/*/explorer.html)"
	@echo "  report    $$(echo $(DEMO)/analysis_results/*/report.html)"
	@echo "  one life  $$(echo $(DEMO)/agent_plots/*/life_*.png)"
	@echo "All commands of the README can read the recording, $(DEMO_DUMP), such as:"
	@echo "  source .venv/bin/activate && python train_probes.py $(DEMO_DUMP)"

study: setup
	@for study in studies/*.yaml; do $(RUN) study.py $$study $(STUDY_OPTIONS) || exit; done

test: setup-all
	$(RUN) -m pytest -n $(WORKERS) $(BY_FILE) -m "not slow"

test-slow: setup-all
	$(RUN) -m pytest -n $(WORKERS) $(BY_FILE) -m slow

test-all: setup-all
	$(RUN) -m pytest -n $(WORKERS) $(BY_FILE)

test-readers: setup-all
	$(UV) run --quiet --no-sync $(addprefix --with ,$(READERS)) python -m pytest $(READ)

soak: setup-all
	NMMO_SOAK_MINUTES=60 $(RUN) -m pytest -n 0 -s tests/test_soak.py

lint: setup-all
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy .

browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

# Removes what there is of some paths, and prints the size of each.
remove = @for path in $(1); do if test -e "$$path"; then \
	echo "removing $$path ($$(du -sh "$$path" | cut -f1))"; rm -rf "$$path"; fi; done

clean:
	$(call remove,.venv .uv uv.lock build *.egg-info $(DEMO))

clean-caches:
	$(call remove,maps "$${XDG_CACHE_HOME:-$$HOME/.cache}/nmmo-interpretability" .pytest_cache .mypy_cache .ruff_cache .hypothesis)
