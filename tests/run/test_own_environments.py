"""The user's own environments, with arguments and wrappers, are trained, evaluated, resumed, swept and refused."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import composed
import gymnasium as gym
import numpy as np
import probes
import pytest
from runs import RUN, assert_same, run_until

from run.environments import make_env_factory
from run.resume import load_settings
from run.workspace import Workspace
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
OWN = (ENV, "+env_kwargs.friction=0.5", NOISE)


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
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_a_wrapper_may_be_for_one_kind_alone_and_the_first_is_innermost() -> None:
    second = "{_target_: gymnasium.wrappers.RescaleAction, min_action: -1.0, max_action: 1.0, only_in: training}"
    cfg = composed.settings(ENV, f"env_wrappers=[{{_target_: my_package.Noise}},{second}]", "+env_kwargs.friction=1")
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
