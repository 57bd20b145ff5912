"""`physics=batched` gives the bytes of `physics=suite`, also when resumed, and is refused where it cannot serve."""

from pathlib import Path
from typing import Any

import composed
import numpy as np
import probes
import pytest
from runs import RUN, assert_same, go_on, run_until

from run.environments import is_batched, make_env_factory, make_train_envs
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
    """Either engine goes on with it, batched by default."""
    run = (*SHORT, "num_envs=2", "save_video=false")
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "killed", 110, *run)
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
        (("env=Pendulum-v1",), "it has no env=Pendulum-v1"),
        (("env=lqr_lqr_2_1",), "it has no env=lqr_lqr_2_1"),
        (("env=cheetah_run", "async_envs=true"), "it does not support async_envs=True"),
        (("env=cheetah_run", "agent=drq"), "it does not support from_pixels=True"),
        (("env=cheetah_run", "frame_stack=2"), "it does not support frame_stack=2"),
        (
            ("env=cheetah_run", "obs_groups={actor: [position], critic: [velocity]}"),
            "it does not support obs_groups=",
        ),
        (("env=cheetah_run", "info_keys.discount=last"), "it does not support info_keys="),
        (("env=cheetah_run", "info_keys.is_success=sum"), "it does not support info_keys="),
        (
            ("env=cheetah_run", "env_kwargs.legacy_step=false"),
            "it does not support env_kwargs.legacy_step",
        ),
        (
            ("env=cheetah_run", "env_wrappers=[{_target_: gymnasium.wrappers.ClipReward, min_reward: 0}]"),
            "it does not support env_wrappers=",
        ),
    ],
)
def test_where_it_cannot_serve_auto_chooses_the_suite(overrides: tuple[str, ...], why: str) -> None:
    assert not is_batched(composed.settings(*overrides))
    with pytest.raises(UserError, match=f"^physics=batched: {why}.*; choose auto or suite$"):
        is_batched(composed.settings(*overrides, "physics=batched"))


def test_auto_chooses_worlds_side_by_side_where_they_serve() -> None:
    assert hasattr(make_env_factory(composed.settings("env=cheetah_run"), "training"), "make_batch")
    assert not hasattr(
        make_env_factory(composed.settings("env=cheetah_run", "physics=suite"), "training"), "make_batch"
    )
