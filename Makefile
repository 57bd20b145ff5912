# make train   train on cheetah_run; ARGS="env=walker_walk seed=3" are passed on
# make test    run the tests
# make cluster-test   sweeps through joblib, submitit and Ray: a run killed, one preempted, a node lost (two minutes)
# make crash-test MINUTES=5   kill runs at random instants, resume them, compare every byte
# make soak    a run of 100 000 steps in which nothing may grow
# make check   formatter, linter, type checker, layering
# make bench   how fast it is, beside Stable-Baselines3, SBX and the machine itself (eight minutes; .venv-bench is theirs)
# make profile a profiler's trace of some updates, for Perfetto or TensorBoard
# make gpu-check   the tests that need a GPU, and training timed on it, in under eight minutes
#
# Each builds .venv on first use, from the pins in requirements.txt, and reuses it while they are unchanged.

PYTHON ?= python3
ARGS ?=
MINUTES ?= 1
VENV := .venv
BIN := $(VENV)/bin
# Full size needs a GPU; without one, train what a CPU can. Presets bring an agent; one that is named gets plain SAC's.
HAS_GPU := $(shell nvidia-smi -L 2>/dev/null | grep -c GPU)
PRESET := $(if $(filter 0,$(HAS_GPU)),preset=$(if $(filter agent=%,$(ARGS)),cpu,fast))
RESUMED := $(filter-out resume=auto,$(filter resume=%,$(ARGS)))
DEFAULTS := $(if $(RESUMED),,env=cheetah_run $(if $(filter preset=%,$(ARGS)),,$(PRESET)))

.PHONY: train test cluster-test check bench profile crash-test soak gpu gpu-check
.DEFAULT_GOAL := train

train: $(VENV)/train.stamp
	$(BIN)/python train.py $(DEFAULTS) $(ARGS)

# wandb's own process answers no process that xdist started.
test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore=tests/test_wandb_sink.py
	$(BIN)/python -m pytest tests/test_wandb_sink.py

cluster-test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m cluster

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layering.py

bench: $(VENV)/train.stamp .venv-bench/stamp
	$(BIN)/python benchmarks/speed.py

profile: $(VENV)/train.stamp
	$(BIN)/python benchmarks/profile_updates.py $(ARGS)

crash-test: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/crash_test.py --minutes $(MINUTES) $(ARGS)

soak: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/soak.py $(ARGS)

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

OPTIONAL := $(addsuffix .txt,$(addprefix requirements-,box2d wandb joblib slurm ray optuna))
$(VENV)/dev.stamp: requirements-dev.txt $(OPTIONAL) requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements-dev.txt
	@touch $@ $(VENV)/train.stamp

.venv-bench/stamp: requirements-bench.txt
	@$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --disable-pip-version-check -q -r requirements-bench.txt
	@touch $@
