"""The user's own environments, with arguments and wrappers, are trained, evaluated, resumed, swept and refused."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import composed
import gymnasium as gym
import numpy as np
import probes
import pytest
import yaml
from runs import RUN, SILENT, assert_same, run_until

import evaluate
from run.environments import make_env_factory
from run.resume import load_settings
from run.workspace import Workspace, read_finished
from utils import UserError

PAGE = Path(__file__).parents[2] / "docs/ENVIRONMENTS.md"
ENV = "env=my_package:Slide-v0"


@pytest.fixture
def my_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Writes the package to a folder, from which it can be imported; yields the folder."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code
    folder = tmp_path / "my_code"
    folder.mkdir()
    (folder / "my_package.py").write_text(code[1])
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("my_package", None)
    gym.registry.pop("Slide-v0", None)


pytestmark = pytest.mark.usefixtures("my_package")
NOISE = "env_wrappers=[{_target_: my_package.Noise, std: 0.2}]"
SMALL = (*probes.SMALL, *RUN)
OWN = (ENV, "env_kwargs.friction=0.5", NOISE)


def list_layers(cfg: Any, place: Any) -> list[str]:
    """The friction of an environment, then its wrappers, innermost first."""
    env = make_env_factory(cfg, place)(False)
    names = [str(env.unwrapped.friction)]
    while env is not env.unwrapped:
        names.insert(1, type(env).__name__)
        env = env.env
    return names


@pytest.mark.parametrize("has_opengl", [True, False])
def test_it_trains_and_is_filmed_with_and_without_opengl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_opengl: bool
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl" if has_opengl else "disabled")
    run = probes.train(tmp_path / "run", *RUN, *OWN, "save_video=true", "num_train_steps=70")
    assert run.agent.num_updates and run.envs.get_attr("friction") == (0.5,)
    assert (tmp_path / "run/video/70.mp4").exists()


def test_killed_and_resumed_it_ends_in_the_same_bytes(tmp_path: Path) -> None:
    probes.train(tmp_path / "straight", *RUN, *OWN)
    run_until(tmp_path / "run", 77, *RUN, *OWN)
    with pytest.raises(UserError, match="my_package"):
        load_settings(tmp_path / "run")
    continued = Workspace(load_settings(tmp_path / "run", ["my_package"]), tmp_path / "run", resume=True)
    continued.run()
    continued.close()
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_resumed_evaluated_and_swept_it_keeps_them(
    tmp_path: Path, command: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = (*SMALL, ENV, NOISE, "num_train_steps=60", *SILENT)
    assert command("-m", *swept, "env_kwargs.friction=0.1,0.5", "hydra.sweep.dir=sweep") == 0
    folders = sorted(path.parent for path in tmp_path.glob("sweep/*/config.yaml"))
    saved = [yaml.safe_load((folder / "config.yaml").read_text()) for folder in folders]
    assert [config["env_kwargs"] for config in saved] == [{"friction": 0.1}, {"friction": 0.5}]
    assert saved[0]["env_wrappers"] == [{"_partial_": True, "_target_": "my_package.Noise", "std": 0.2}]
    resumed = f"resume={folders[1]}", "num_train_steps=80"
    assert command(*resumed) == 2
    assert command(*resumed, "trust=my_package") == 0
    finished = read_finished(folders[1])
    assert finished is not None and finished["step"] == 80
    made: list[Any] = []
    monkeypatch.setattr(evaluate, "Evaluator", lambda make_env, *_, **__: made.append(make_env(False)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate.evaluate(folders[1], device="cpu", trusted=["my_package"])
    assert made[0].unwrapped.friction == 0.5 and made[0].get_wrapper_attr("std") == 0.2


def test_a_wrapper_may_be_for_one_kind_alone_and_the_first_is_innermost() -> None:
    second = "{_target_: gymnasium.wrappers.RescaleAction, min_action: -1.0, max_action: 1.0, only_in: training}"
    cfg = composed.settings(ENV, f"env_wrappers=[{{_target_: my_package.Noise}},{second}]", "env_kwargs.friction=1")
    inside, around = ["1", "OrderEnforcing", "TimeLimit", "Noise"], ["EpisodeInfo", "ActionRepeat"]
    around += ["TransformObservation", "RescaledActions"]
    assert list_layers(cfg, "training") == [*inside, "RescaleAction", *around]
    assert list_layers(cfg, "evaluation") == [*inside, *around]


def test_around_a_task_of_the_suite_they_see_a_vector_and_every_step() -> None:
    task = ("env=reacher_easy", "action_repeat=3")
    wrapped = composed.settings(*task, "env_wrappers=[{_target_: my_package.Noise, std: 0}]")
    envs = [make_env_factory(cfg, "training")(False) for cfg in (composed.settings(*task), wrapped)]
    for env in envs:
        env.reset(seed=3)
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32):
        (obs, *rest, _), (obs_too, *rest_too, info) = (env.step(action) for env in envs)
        np.testing.assert_array_equal(obs, obs_too)
        assert rest == rest_too and info["repeats"] == 3
    assert envs[1].get_wrapper_attr("random")
