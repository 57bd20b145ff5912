"""The user's own environments, with arguments and wrappers, are trained, evaluated, resumed, swept and refused."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import composed
import gymnasium as gym
import numpy as np
import probes
import pytest
import yaml
from own_package import ENV, my_package  # noqa: F401
from runs import RUN, SILENT, Killed, assert_same, at_step, rows

import evaluate
from envs import opengl
from run.environments import make_env_factory
from run.resume import load_settings
from run.workspace import Workspace

pytestmark = pytest.mark.usefixtures("my_package")
NOISE = "env_wrappers=[{_target_: my_package.Noise, std: 0.2}]"
SMALL = (*probes.SMALL, *RUN)


def layers(cfg: Any, place: Any) -> list[str]:
    """The friction of an environment, then its wrappers, innermost first."""
    env = make_env_factory(cfg, place)(False)
    names = [str(env.unwrapped.friction)]  # type: ignore[attr-defined]
    while env is not env.unwrapped:
        names.insert(1, type(env).__name__)
        env = env.env  # type: ignore[attr-defined]
    return names


@pytest.mark.parametrize("has_opengl", [True, False])
@pytest.mark.parametrize("films", [True, False])
def test_it_trains_with_and_without_videos_and_opengl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, films: bool, has_opengl: bool
) -> None:
    monkeypatch.setattr(opengl, "can_render", lambda: has_opengl)
    own = (ENV, "env_kwargs.friction=0.5", NOISE, f"save_video={films}", "num_train_steps=70")
    run = probes.train(tmp_path / "run", *RUN, *own)
    assert run.agent.num_updates and run.envs.get_attr("friction") == (0.5,)  # type: ignore[attr-defined]
    assert (tmp_path / "run/video/70.mp4").exists() == films


def test_its_arguments_reach_processes_and_evaluations_beside_the_training(
    tmp_path: Path, command: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py"])
    own = (ENV, "env_kwargs.friction=0.5", NOISE, "num_envs=2")
    beside = ("async_envs=true", "eval_in_background=true")
    assert command(*SMALL, *own, *beside, "hydra.run.dir=apart", *SILENT) == 0
    assert command(*SMALL, *own, "hydra.run.dir=here", *SILENT) == 0
    timed = dict.fromkeys(("duration", "steps_per_second"))
    for log in ("train.csv", "eval.csv"):
        apart, here = ([row | timed for row in rows(tmp_path / name / log)] for name in ("apart", "here"))
        assert apart == here and len(here) > 1


def test_killed_and_resumed_it_ends_in_the_same_bytes(tmp_path: Path) -> None:
    own = (ENV, "env_kwargs.friction=0.5", NOISE)
    probes.train(tmp_path / "straight", *RUN, *own)
    dying = probes.workspace(tmp_path / "run", *RUN, *own)

    def die() -> None:
        raise Killed

    at_step(dying, 77, die)
    with pytest.raises(Killed):
        dying.run()
    dying.close()
    cfg = load_settings(tmp_path / "run", ["my_package"])
    continued = Workspace(cfg, tmp_path / "run", resume=True)
    continued.run()
    continued.close()
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_resumed_evaluated_and_swept_it_keeps_them(
    tmp_path: Path, command: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = (*SMALL, ENV, NOISE, "num_train_steps=60", *SILENT)
    assert command("-m", *own, "env_kwargs.friction=0.1,0.5", "hydra.sweep.dir=sweep") == 0
    folders = [tmp_path / f"sweep/env_kwargs.friction-{friction}" for friction in (0.1, 0.5)]
    saved = [yaml.safe_load((folder / "config.yaml").read_text()) for folder in folders]
    assert [config["env_kwargs"] for config in saved] == [{"friction": 0.1}, {"friction": 0.5}]
    assert saved[0]["env_wrappers"] == [{"_target_": "my_package.Noise", "_partial_": True, "std": 0.2}]
    run = str(folders[1])
    again = (*own[:-3], "env_kwargs.friction=0.5", f"hydra.run.dir={run}", "resume=auto", *SILENT)
    assert command(*again, "num_train_steps=70") == 0  # names the wrapper itself, so needs no trust=
    assert json.loads((folders[1] / "finished.json").read_text())["step"] == 70
    capsys.readouterr()
    assert command(f"resume={run}", "num_train_steps=80") == 2
    assert command(f"resume={run}", "num_train_steps=80", "trust=my_package", "env_kwargs.friction=0.6") == 2
    said = capsys.readouterr().err
    assert "env_kwargs.friction=0.6 would change the run, which has env_kwargs.friction=0.5" in said
    other = NOISE.replace("0.2", "0.3")
    assert command(f"resume={run}", "num_train_steps=80", "trust=my_package", other) == 2
    assert ": env_wrappers" in capsys.readouterr().err
    assert command(f"resume={run}", "num_train_steps=80", "trust=my_package", NOISE) == 0
    made: list[Any] = []
    monkeypatch.setattr(evaluate, "Evaluator", lambda make_env, *_, **__: made.append(make_env(False)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate.evaluate(folders[1], device="cpu", trusted=["my_package"])
    assert made[0].unwrapped.friction == 0.5 and made[0].get_wrapper_attr("std") == 0.2


def test_a_wrapper_may_be_for_one_kind_alone_and_the_first_is_innermost() -> None:
    first, second = (
        "{_target_: my_package.Noise}",
        "{_target_: gymnasium.wrappers.ClipReward, max_reward: 1, only_in: %s}",
    )
    cfg = composed.settings(ENV, f"env_wrappers=[{first},{second % 'training'}]", "env_kwargs.friction=1")
    around = ["EpisodeInfo", "ActionRepeat", "TransformObservation", "RescaledActions"]
    inside = ["1", "OrderEnforcing", "TimeLimit"]
    assert layers(cfg, "training") == [*inside, "Noise", "ClipReward", *around]
    assert layers(cfg, "evaluation") == [*inside, "Noise", *around]


def test_around_a_task_of_the_suite_they_see_a_vector_and_every_step() -> None:
    plain = composed.settings("env=reacher_easy", "action_repeat=3")
    wrapped = composed.settings(
        "env=reacher_easy", "action_repeat=3", "env_wrappers=[{_target_: my_package.Noise, std: 0}]"
    )
    envs = [make_env_factory(cfg, "training")(False) for cfg in (plain, wrapped)]
    for env in envs:
        env.reset(seed=3)
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32):
        (obs, *rest, _), (obs_too, *rest_too, info) = (env.step(action) for env in envs)
        np.testing.assert_array_equal(obs, obs_too)
        assert rest == rest_too and info["repeats"] == 3
    assert envs[1].get_wrapper_attr("random")


def test_actions_of_a_class_of_ones_own_are_no_other_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(gym.spaces.Discrete): ...

    build = importlib.import_module("my_package").Slide.__init__

    def discrete(self: Any, *arguments: Any, **named: Any) -> None:
        build(self, *arguments, **named)
        self.action_space = Named(3)

    monkeypatch.setattr("my_package.Slide.__init__", discrete)
    probes.workspace(tmp_path, *RUN, ENV, "agent=sac_discrete").close()


def test_a_wrapper_with_statistics_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrapper = "env_wrappers=[{_target_: gymnasium.wrappers.NormalizeObservation}]"
    probes.workspace(tmp_path, *RUN, wrapper).close()
    assert "NormalizeObservation has other statistics in each environment" in capsys.readouterr().out


def test_no_run_is_called_solved_by_returns_that_a_wrapper_changed(tmp_path: Path) -> None:
    solved = "env=ProbeSolved-v0"
    for place, expected in (("training", 5.0), ("evaluation", None)):
        wrapper = f"env_wrappers=[{{_target_: gymnasium.wrappers.ClipReward, max_reward: 9, only_in: {place}}}]"
        run = probes.workspace(tmp_path / place, solved, wrapper)
        assert run.evaluations.solved_from == expected
        run.close()
