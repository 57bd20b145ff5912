"""`physics=batched` gives the bytes of `physics=suite`, also when resumed, and is refused where it cannot serve."""

from pathlib import Path
from typing import Any

import composed
import numpy as np
import probes
import pytest
from runs import RUN, assert_same, go_on, run_until

from run.environments import SuiteMaker, env_maker, is_batched, make_train_envs
from utils import UserError

SHORT = ("env=hopper_stand", "env_kwargs.time_limit=0.6", *RUN)  # episodes of 30 steps


@pytest.mark.parametrize("more", [(), ("num_envs=3", "action_repeat=4", "stagger_steps=8")])
def test_it_has_the_bytes_of_the_suite(tmp_path: Path, more: tuple[str, ...]) -> None:
    run = (*SHORT, *more, "num_eval_episodes=12")  # more episodes than are evaluated at once
    suite = probes.train(tmp_path / "suite", *run, "physics=suite")
    batched = probes.train(tmp_path / "batched", *run, "physics=batched")
    assert len(suite.envs.envs) == batched.envs._worlds.count  # type: ignore[attr-defined]
    assert_same(tmp_path / "batched", tmp_path / "suite")


@pytest.mark.parametrize("overrides", [["physics=suite"], []])
def test_a_run_that_was_killed_goes_on_in_mid_episode(tmp_path: Path, overrides: list[str]) -> None:
    """Either engine goes on with it, batched by default; its config lacks `physics`, as in older versions."""
    run = (*SHORT, "num_envs=2", "save_video=false")
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "killed", 110, *run)
    config = tmp_path / "killed/config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("physics: auto\n", ""), encoding="utf-8")
    resumed = go_on(tmp_path / "killed", *overrides)
    assert hasattr(resumed.envs, "_worlds") == (not overrides)
    assert_same(tmp_path / "killed", tmp_path / "straight")


def test_worlds_that_are_at_different_steps_are_restored() -> None:
    run, again = (composed_envs(), composed_envs())
    actions = np.random.default_rng(0).uniform(-1, 1, (9, 2, 4)).astype(np.float32)
    run.reset(options={"reset_mask": np.ones(2, bool)})
    for number, action in enumerate(actions):
        obs = run.step(action)[0]
        if number in (2, 6):
            obs = run.reset(options={"reset_mask": np.array([number == 2, number == 6])})[0]
    states = run.call("state_dict")
    assert [(state["episode"], len(state["actions"])) for state in states] == [(2, 6), (2, 2)]
    restored, _ = again.reset(options={"reset_mask": np.ones(2, bool), "states": states})
    np.testing.assert_array_equal(restored, obs)
    assert again.call("state_dict") == states
    for envs in (run, again):
        envs.step(actions[0])
    assert run.call("state_dict") == again.call("state_dict")
    np.testing.assert_array_equal(run._obs, again._obs)
    run.close()
    again.close()


def composed_envs() -> Any:
    return make_train_envs(composed.settings("env=hopper_hop", "num_envs=2"))


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("env=Pendulum-v1",), "it serves tasks of the Control Suite"),
        (("env=lqr_lqr_2_1",), "it does not serve this task"),
        (("env=cheetah_run", "async_envs=true"), "async_envs=true wants a process for each environment"),
        (("env=cheetah_run", "agent=drq"), "from_pixels=true renders every step"),
        (("env=cheetah_run", "frame_stack=2"), "frame_stack is of one environment's observations"),
        (
            ("env=cheetah_run", "obs_groups={actor: [position], critic: [velocity]}"),
            "obs_groups are of one environment",
        ),
        (("env=cheetah_run", "info_keys.discount=last"), "info_keys are of one environment's info"),
        (("env=cheetah_run", "info_keys.is_success=sum"), "info_keys are of one environment's info"),
        (("env=cheetah_run", "env_kwargs.legacy_step=false"), "env_kwargs.legacy_step=false"),
        (
            ("env=cheetah_run", "env_wrappers=[{_target_: gymnasium.wrappers.ClipReward, min_reward: 0}]"),
            "env_wrappers go around one environment",
        ),
    ],
)
def test_where_it_cannot_serve_auto_chooses_the_suite(overrides: tuple[str, ...], why: str) -> None:
    assert not is_batched(composed.settings(*overrides))
    with pytest.raises(UserError, match=f"^physics=batched: {why}.*; choose auto or suite$"):
        is_batched(composed.settings(*overrides, "physics=batched"))


def test_auto_chooses_worlds_side_by_side_where_they_serve() -> None:
    assert isinstance(env_maker(composed.settings("env=cheetah_run"), "training"), SuiteMaker)
    assert not isinstance(env_maker(composed.settings("env=cheetah_run", "physics=suite"), "training"), SuiteMaker)
