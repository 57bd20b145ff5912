# make train   train on cheetah_run; ARGS="env=walker_walk seed=3" are passed on
# make test    run the tests
# make check   formatter, linter, type checker, layering
# make gpu-check   the tests that need a GPU, and training timed on it, in under eight minutes
#
# Each builds .venv on first use, from the pins in requirements.txt, and reuses it while they are unchanged.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Full size needs a GPU; without one, train what a CPU can.
HAS_GPU := $(shell nvidia-smi -L 2>/dev/null | grep -c GPU)
PRESET := $(if $(filter 0,$(HAS_GPU)),preset=cpu)

.PHONY: train test check gpu gpu-check
.DEFAULT_GOAL := train

train: $(VENV)/train.stamp
	$(BIN)/python train.py env=cheetah_run $(if $(findstring preset=,$(ARGS)),,$(PRESET)) $(ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layering.py

gpu-check: gpu $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python benchmarks/gpu.py

gpu:
	$(if $(filter 0,$(HAS_GPU)),$(error gpu-check needs an NVIDIA GPU, and nvidia-smi lists none here))@:

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' || \
		{ echo "Python 3.11 or 3.12 is needed, and $(PYTHON) is not; name one that is: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3's venv is needed: apt install python3-venv" >&2; exit 2; }

$(VENV)/train.stamp: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements.txt
	@touch $@

$(VENV)/dev.stamp: requirements-dev.txt requirements-box2d.txt requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements-dev.txt
	@touch $@ $(VENV)/train.stamp
