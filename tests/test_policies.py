"""A policy's file with its JSON plays without its run's folder, and a stranger's file executes no code."""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
from agents import SMALL, TINY, make_agent
from runs import RUN, assert_same, go_on, quoted, run_until
from strangers import copy_of

import evaluate
import export
from run.saving.policy_bundle import read
from utils import UserError

OVERRIDES = (
    "env=cartpole_swingup",
    "env_kwargs.time_limit=0.2",
    *RUN,
    "num_train_steps=80",
    "action_repeat=2",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder, which tests only read."""
    folder = tmp_path_factory.mktemp("run")
    probes.train(folder, *OVERRIDES, "agent/observation_normaliser=running")
    return folder


@pytest.fixture(scope="module")
def packed(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export.export(run, "policy", output=tmp_path_factory.mktemp("elsewhere") / "cartpole.pt")


def test_it_plays_the_episodes_of_the_run_and_says_what_it_is_of(run: Path, packed: Path) -> None:
    there = sorted(packed.parent.iterdir())
    assert evaluate.evaluate(packed, 2) == evaluate.evaluate(run, 2)
    assert sorted(packed.parent.iterdir()) == there
    assert evaluate.evaluate(packed, 2, seed=9) == evaluate.evaluate(run, 2, seed=9) != evaluate.evaluate(packed, 2)
    about = json.loads(packed.with_name("cartpole.pt.json").read_text())
    assert (about["kind"], about["task"], about["step"], about["action_repeat"]) == (
        "policy",
        "cartpole_swingup",
        80,
        2,
    )
    assert about["settings"]["env_kwargs"] == {"time_limit": 0.2} and about["worst_difference"] < 1e-6
    header, *_, last = (run / "eval.csv").read_text().splitlines()
    row = dict(zip(header.split(","), last.split(","), strict=True))
    assert about["return"]["mean"] == float(row["episode_reward"])


def test_the_command_films_where_it_is_told_to(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    films: list[Any] = []
    (tmp_path / "out.mp4").touch()
    monkeypatch.setattr(evaluate, "evaluate", lambda path, episodes, seed, device, film, *rest: films.append(film))
    for words in ([], ["--video", str(tmp_path / "out.mp4")]):
        monkeypatch.setattr(sys, "argv", ["evaluate.py", str(packed), *words])
        assert evaluate.main() == 0
    assert films == [None, tmp_path / "out.mp4"]


def test_it_acts_for_the_seed_steps_of_another_run(packed: Path, tmp_path: Path) -> None:
    mine = copy_of(packed, tmp_path)
    overrides = (*OVERRIDES, f"seed_policy={quoted(mine)}", "num_seed_steps=50", "experiment='🚀'")
    probes.train(tmp_path / "straight", *overrides)
    run_until(tmp_path / "killed", 44, *overrides)
    mine.unlink()  # the run has its own copy
    assert go_on(tmp_path / "killed").step == 80
    assert_same(tmp_path / "killed", tmp_path / "straight")
    again = export.export(tmp_path / "killed", "policy")
    assert read(again).cfg.experiment == "🚀"  # YAML and JSON write it differently


def test_it_is_exported_in_its_turn(packed: Path, tmp_path: Path) -> None:
    made = export.export(packed, "torchscript", output=tmp_path / "policy.torchscript")
    about, first = (json.loads(path.with_name(f"{path.name}.json").read_text()) for path in (made, packed))
    assert about["return"] == first["return"] and "settings" not in about
    assert export._default_output(export.run_policy.load(packed, "cpu"), "onnx") == packed.with_suffix(".onnx")


def changed(**values: Any) -> Callable[[Path], None]:
    """Returns a change of values in the JSON; `settings` are merged into those that are there."""

    def change(path: Path) -> None:
        about = path.with_name(f"{path.name}.json")
        said = json.loads(about.read_text())
        settings = said["settings"] | values.pop("settings", {})
        about.write_text(json.dumps(said | values | {"settings": settings}))

    return change


def other_weights(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 99)
    changed(sha256=hashlib.sha256(path.read_bytes()).hexdigest())(path)


def escaped(path: Path) -> None:
    changed(settings={"experiment": "DOLLAR{oc.create:{_target_:os.mkdir}}"})(path)
    about = path.with_name(f"{path.name}.json")
    about.write_text(about.read_text().replace("DOLLAR", "\\u0024"))


def huge(path: Path) -> None:
    changed(**{"return": {"step": 1, "mean": 7, "std": 0}})(path)
    about = path.with_name(f"{path.name}.json")
    about.write_text(about.read_text().replace('"mean": 7', f'"mean": 1{"0" * 400}'))


def half_a_policy(path: Path) -> None:
    """Saves a mixture's actor without the critic that it needs to act."""
    agent = make_agent("agent=sac_2018", *SMALL, "agent.actor.num_components=3", obs_dim=5, action_dim=1)
    agent.save_policy(path)
    saved = torch.load(path, weights_only=True)
    del saved["networks"]["critic"]
    torch.save(saved, path)
    changed(sha256=hashlib.sha256(path.read_bytes()).hexdigest())(path)


def not_finite(path: Path) -> None:
    saved = torch.load(path, weights_only=True)
    for weight in saved["networks"]["actor"]["weights"].values():
        weight.fill_(torch.nan)
    torch.save(saved, path)
    changed(sha256=hashlib.sha256(path.read_bytes()).hexdigest())(path)


def evil(target: str) -> dict[str, Any]:
    return {"env_wrappers": [{"_target_": target, "_partial_": True}]}


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a wrapper": (changed(settings=evil("evil_module.Thing")), "none of this project's classes, so it is not run"),
    "a function": (changed(settings=evil("os.mkdir")), "none of this project's classes, so it is not run"),
    "a package": (changed(settings={"env": "evil_module:Thing-v0"}), "env=evil_module:Thing-v0: none of this project"),
    "an agent": (changed(settings={"agent": {"_target_": "os.mkdir", "name": "x"}}), "so it is not run"),
    "no agent": (changed(settings={"agent": 3}), "not what export.py writes beside a policy (AttributeError)"),
    "an unknown key": (changed(settings={"horses": 3}), "horses"),
    "no list": (changed(settings={"env_wrappers": "all"}), "env_wrappers"),
    "another task's": (changed(settings={"env": "cheetah_run"}), "saved for an environment of other shapes"),
    "no task": (changed(settings={"env": "cheetah_fly"}), "cheetah_fly"),
    "an interpolation": (
        changed(settings={"experiment": "${oc.create:{_target_:os.mkdir}}"}),
        "an interpolation in line",
    ),
    "a written-out one": (escaped, "an interpolation in line"),
    "a schedule that is none": (
        changed(settings={"reward_scale": {"_target_": "agent.networks.heads.CategoricalHead", "num_bins": 10**10}}),
        "reward_scale._target_=agent.networks.heads.CategoricalHead: no schedule",
    ),
    "60 000 values": (changed(settings={"env_wrappers": [1] * 60_000}), "more than 50,000 values"),
    "50 levels": (changed(settings={"env_kwargs": json.loads('{"a":' * 50 + "1" + "}" * 50)}), "or 40 levels"),
    "two lines": (changed(settings={"execution": "a\nb"}), "execution"),
    "a huge return": (lambda path: huge(path), "not what export.py writes beside a policy"),
    "a step of no number": (changed(step="many"), "not what export.py writes beside a policy"),
    "a return of no number": (changed(**{"return": {"step": 1, "mean": []}}), "not what export.py writes beside"),
    "other weights": (other_weights, "has changed since cartpole.pt.json beside it was written"),
    "half a policy": (half_a_policy, "saved for an environment of other shapes"),
    "no policy": (garbage, "not a policy that can be read"),
    "a deep JSON": (
        lambda path: path.with_name("cartpole.pt.json").write_text("[" * 99_999),
        "nesting depth, by line 1",
    ),
    "a list": (lambda path: path.with_name("cartpole.pt.json").write_text("[]"), "not what export.py writes"),
    "no JSON": (lambda path: path.with_name("cartpole.pt.json").unlink(), "cartpole.pt.json: No such file"),
    "no file": (lambda path: path.unlink(), "cartpole.pt: No such file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_one_runs_nothing_and_is_one_line(
    name: str,
    packed: Path,
    mark: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = copy_of(packed, tmp_path)
    change, message = HOSTILE[name]
    change(path)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(path), "--episodes", "1"])
    assert evaluate.main() == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1, said
    assert not mark.exists()


def test_a_policy_that_is_not_finite_is_one_line(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy_of(packed, tmp_path)
    not_finite(path)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(path), "--episodes", "1"])
    assert evaluate.main() == 3
    assert capsys.readouterr().err == "evaluate.py: action[0, 0] is nan\n"


def test_a_file_that_could_not_be_read_back_is_not_written(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mine: a policy's file goes here, whose name ends in \.pt"):
        export.export(packed, "policy", output=tmp_path / "mine")


@pytest.mark.parametrize("kind", ["policy", "torchscript"])
def test_a_policy_does_not_take_its_own_place(packed: Path, kind: str) -> None:
    before = packed.read_bytes()
    with pytest.raises(UserError, match=r"cartpole\.pt: that is the policy itself; another file goes here"):
        export.export(packed, kind, output=packed)
    assert packed.read_bytes() == before


def test_the_policy_of_images_is_exported_too(tmp_path: Path) -> None:
    images = ("agent=drq", *TINY, "frame_stack=2", "action_repeat=1", "env=probes:ProbeImages-v0")
    probes.train(tmp_path / "run", *RUN, *images, "num_train_steps=80")
    packed = export.export(tmp_path / "run", "policy", trusted=("probes",))
    export.export(tmp_path / "run", trusted=("probes",))
    about = json.loads((tmp_path / "run/export/policy.onnx.json").read_text())
    assert about["input"]["dtype"] == "uint8" and len(about["input"]["shape"]) == 4
    returns = [evaluate.evaluate(path, 2, trusted=("probes",)) for path in (packed, tmp_path / "run")]
    np.testing.assert_array_equal(*returns)
    with pytest.raises(UserError, match="--trust probes"):
        evaluate.evaluate(packed, 2)
