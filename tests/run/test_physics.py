"""`physics=batched` gives the bytes of `physics=suite`, also when resumed, and is refused where it cannot serve."""

from pathlib import Path

import composed
import probes
import pytest
from runs import RUN, assert_goes_on, assert_same

from run.environments import is_batched
from utils import UserError

# Episodes of 30 steps, whose first ends earlier, at another step in each environment.
SHORT = ("env=hopper_stand", "+env_kwargs.time_limit=0.6", "stagger_steps=8", *RUN)


def test_it_has_the_bytes_of_the_suite(tmp_path: Path) -> None:
    # More episodes than are evaluated at once.
    run = (*SHORT, "num_envs=3", "action_repeat=4", "num_eval_episodes=12")
    suite = probes.train(tmp_path / "suite", *run, "physics=suite")
    batched = probes.train(tmp_path / "batched", *run, "physics=batched")
    assert len(suite.envs.envs) == batched.envs._worlds.count  # type: ignore[attr-defined]
    assert_same(tmp_path / "batched", tmp_path / "suite")


@pytest.mark.parametrize("overrides", [pytest.param(["physics=suite"], marks=pytest.mark.thorough), []])
def test_a_run_that_was_killed_goes_on_in_mid_episode_in_either_engine(tmp_path: Path, overrides: list[str]) -> None:
    _, resumed = assert_goes_on(tmp_path, 110, *SHORT, "num_envs=2", "save_video=false", then=tuple(overrides))
    assert hasattr(resumed.envs, "_worlds") == (not overrides)


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ("env=Pendulum-v1", "has no env=Pendulum-v1"),
        ("env=lqr_lqr_2_1", "has no env=lqr_lqr_2_1"),
        ("async_envs=true", "does not support async_envs=True"),
        ("agent=drq", "does not support from_pixels=True"),
        ("frame_stack=2", "does not support frame_stack=2"),
        ("obs_groups={actor: [position], critic: [velocity]}", "does not support obs_groups="),
        ("+info_keys.discount=last", "does not support info_keys="),
        ("info_keys.is_success=sum", "does not support info_keys="),
        ("+env_kwargs.legacy_step=false", "does not support env_kwargs.legacy_step"),
        ("env_wrappers=[{_target_: gymnasium.wrappers.ClipReward, min_reward: 0}]", "does not support env_wrappers="),
    ],
)
def test_where_it_cannot_serve_auto_chooses_the_suite(overrides: str, why: str) -> None:
    assert not is_batched(composed.settings("env=cheetah_run", overrides))
    with pytest.raises(UserError, match=f"^physics=batched: it {why}.*; choose auto or suite$"):
        is_batched(composed.settings("env=cheetah_run", overrides, "physics=batched"))


@pytest.mark.parametrize(
    ("overrides", "serves"),
    [("env=cheetah_run", True), ("env=point_mass_hard", False), ("action_repeat=2", False), ("agent=drq", False)],
)
def test_warp_serves_some_tasks_in_single_steps(overrides: str, serves: bool) -> None:
    cfg = composed.settings("env=cheetah_run", overrides, "physics=warp")
    if serves:
        assert is_batched(cfg)
    else:
        with pytest.raises(UserError, match=r"^physics=warp: it "):
            is_batched(cfg)
