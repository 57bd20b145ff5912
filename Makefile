# make train          train, on cheetah_run by default; ARGS="env=walker_walk seed=3" is passed on
# make test           run the tests
# make thorough       the tests that take longer: every agent with every part, compiled, started twice
# make cluster-test   sweeps through joblib, submitit and Ray
# make crash-test     kill runs at random instants, resume them and compare every byte; MINUTES=5 for five minutes
# make bench          speed compared with Stable-Baselines3 and SBX (eight minutes; builds .venv-bench for them)
# make gpu-check      the tests that need a GPU, and the speed of training on it (a quarter of an hour)
# make check          formatter, linter, type checker, layering test
# make format         format the code
# make ci             what has to pass before a change lands: check, test, crash-test
#
# Each builds .venv on first use from the pins in requirements.txt and constraints.txt, and updates it when they change.

PYTHON ?= python3
ARGS ?=
MINUTES ?= 1
VENV := .venv
BIN := $(VENV)/bin
# Full size needs a GPU. Without one, `make train` adds preset=fast, unless ARGS chooses an agent, a preset or a run.
HAS_GPU := $(shell [ "$${CUDA_VISIBLE_DEVICES-0}" ] && nvidia-smi -L 2>/dev/null | grep -c '^GPU' || echo 0)
CHOSEN := $(filter-out resume=auto,$(filter agent=% preset=% resume=%,$(ARGS)))$(filter-out 0,$(HAS_GPU))
DEFAULTS := $(if $(CHOSEN),,preset=fast)

.PHONY: help train test thorough cluster-test crash-test bench gpu gpu-check check format ci
.DEFAULT_GOAL := help

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

train: $(VENV)/train.stamp
	$(BIN)/python train.py $(DEFAULTS) $(ARGS)

# Three workers keep two cores busy, as tests wait for processes. wandb's service process does not answer those that
# xdist starts, so its tests run alone.
test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest tests/sinks/test_wandb_sink.py
	$(BIN)/python -m pytest -n 3 --dist worksteal --ignore=tests/sinks/test_wandb_sink.py

cluster-test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m cluster

thorough: $(VENV)/warp.stamp
	$(BIN)/python -m pytest -n 3 --dist worksteal -m thorough

format: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layering.py

ci: check test
	$(MAKE) crash-test MINUTES=1

bench: $(VENV)/train.stamp .venv-bench/stamp
	$(BIN)/python benchmarks/speed.py

crash-test: $(VENV)/dev.stamp
	$(BIN)/python tests/crash_test.py --minutes $(MINUTES) $(ARGS)

gpu-check: gpu $(VENV)/warp.stamp
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python benchmarks/gpu.py

gpu:
	$(if $(filter 0,$(HAS_GPU)),$(error gpu-check needs an NVIDIA GPU, and nvidia-smi lists none here))@:

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || \
		{ echo "Python 3.11 to 3.14 is needed, and $(PYTHON) is not; name one that is: make PYTHON=python3.13" >&2; exit 2; }
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "python3's venv is needed: apt install python3-venv" >&2; exit 2; }

# Without pip, the Python behind .venv has become another version since, or uv made .venv: all is installed anew.
HAS_PIP = $(BIN)/python -c 'import pip' 2>/dev/null
$(shell $(HAS_PIP) || rm -f $(VENV)/*.stamp)
PIP = $(BIN)/python -m pip install --disable-pip-version-check -q
# From Python 3.13 on, dm_control goes in without its requirements: see requirements.txt.
SUITE = $(1) -c 'import sys; sys.exit(sys.version_info >= (3, 13))' || \
	$(1) -m pip install --disable-pip-version-check -q --no-deps "$$(grep -o '^dm_control==[0-9.]*' requirements.txt)"

$(VENV)/train.stamp: requirements.txt | $(BIN)/python
	@echo "Installing PyTorch and the other requirements into $(VENV); this takes a few minutes."
	@$(HAS_PIP) || $(BIN)/python -m ensurepip
	$(PIP) -r requirements.txt
	@$(call SUITE,$(BIN)/python)
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt requirements.txt | $(BIN)/python
	@$(HAS_PIP) || $(BIN)/python -m ensurepip
	$(PIP) -r requirements.txt -e '.[dev]' -c constraints.txt
	@$(call SUITE,$(BIN)/python)
	@touch $@ $(VENV)/train.stamp

# Apart from the others: it is large, and only thorough tests and a GPU's use it.
$(VENV)/warp.stamp: $(VENV)/dev.stamp
	$(PIP) -e '.[warp]' -c constraints.txt
	@touch $@

.venv-bench/stamp: pyproject.toml constraints.txt requirements.txt
	@$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --disable-pip-version-check -q -r requirements.txt -e '.[bench]' -c constraints.txt
	@$(call SUITE,.venv-bench/bin/python)
	@touch $@
