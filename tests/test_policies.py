"""A policy's file with its JSON plays without its run's folder, and a stranger's file executes no code."""

import json
from pathlib import Path

import numpy as np
import probes
import pytest
from agents import TINY
from runs import RUN, assert_same, go_on, quoted, rows, run_until
from strangers import copy_of

import evaluate
import export
from utils import UserError

OVERRIDES = ("env=cartpole_swingup", "+env_kwargs.time_limit=0.2", *RUN, "num_train_steps=80", "action_repeat=2")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder, which tests only read."""
    folder = tmp_path_factory.mktemp("run")
    probes.train(folder, *OVERRIDES, "agent/observation_normaliser=running")
    return folder


@pytest.fixture(scope="module")
def packed(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export.export(run, "policy", output=tmp_path_factory.mktemp("elsewhere") / "cartpole.pt")


def test_it_plays_the_episodes_of_the_run_and_describes_it(run: Path, packed: Path) -> None:
    before = sorted(packed.parent.iterdir())
    assert evaluate.evaluate(packed, 2) == evaluate.evaluate(run, 2)
    assert sorted(packed.parent.iterdir()) == before
    assert evaluate.evaluate(packed, 2, seed=9) == evaluate.evaluate(run, 2, seed=9) != evaluate.evaluate(packed, 2)
    about = json.loads(packed.with_name("cartpole.pt.json").read_text())
    assert (about["kind"], about["task"], about["step"]) == ("policy", "cartpole_swingup", 80)
    assert about["settings"]["env_kwargs"] == {"time_limit": 0.2} and about["worst_difference"] < 1e-6
    assert about["return"]["mean"] == float(rows(run / "eval.csv")[-1]["episode_reward"])


def test_it_acts_for_the_seed_steps_of_another_run(packed: Path, tmp_path: Path) -> None:
    mine = copy_of(packed, tmp_path)
    overrides = (*OVERRIDES, f"seed_policy={quoted(mine)}", "num_seed_steps=50")
    probes.train(tmp_path / "straight", *overrides)
    run_until(tmp_path / "killed", 44, *overrides)
    assert go_on(tmp_path / "killed").step == 80
    assert_same(tmp_path / "killed", tmp_path / "straight")


@pytest.mark.thorough
def test_it_is_exported_in_its_turn(packed: Path, tmp_path: Path) -> None:
    mine = copy_of(packed, tmp_path)
    again = export.export(mine)
    about, first = (json.loads(path.with_name(f"{path.name}.json").read_text()) for path in (again, packed))
    assert again == mine.with_suffix(".onnx") and about["return"] == first["return"] and "settings" not in about


def test_the_policy_of_images_is_exported_too(tmp_path: Path) -> None:
    images = ("agent=drq", *TINY, "frame_stack=2", "action_repeat=1", "env=probes:ProbeImages-v0")
    probes.train(tmp_path / "run", *RUN, *images, "num_train_steps=80")
    packed = export.export(tmp_path / "run", "policy", trusted=("probes",))
    export.export(tmp_path / "run", trusted=("probes",))
    about = json.loads((tmp_path / "run/export/policy.onnx.json").read_text())
    assert about["inputs"][0]["dtype"] == "uint8" and len(about["inputs"][0]["shape"]) == 4
    returns = [evaluate.evaluate(path, 2, trusted=("probes",)) for path in (packed, tmp_path / "run")]
    np.testing.assert_array_equal(*returns)
    with pytest.raises(UserError, match="trust=probes"):
        evaluate.evaluate(packed, 2)


def test_every_policy_in_the_repository_can_be_read() -> None:
    for path in sorted((Path(evaluate.__file__).parent / "policies").glob("*.pt")):
        assert evaluate.load_run_policy(path, "cpu").step == 100_000
