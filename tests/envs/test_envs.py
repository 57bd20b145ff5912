"""Environments by name, their arguments and wrappers, and episodes that depend only on their seeds."""

from typing import Any

import numpy as np
import pytest

from envs.episodes import SeededEpisodes, episode_seed
from envs.make import make_env, needs_opengl
from settings.env_ids import require_known
from utils import UserError


@pytest.mark.parametrize("name", ["ball_in_cup_catch", "humanoid_CMU_run", "lqr_lqr_6_2", "Pendulum", "HalfCheetah-v5"])
def test_names_of_either_family(name: str) -> None:
    env = make_env(name, seed=1, action_repeat=2)
    obs, _ = env.reset(seed=1)
    assert obs.dtype == np.float32 and obs.ndim == 1
    *_, info = env.step(env.action_space.sample())
    assert info["repeats"] == 2
    require_known(name)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "cheeta_run": ({}, "did you mean cheetah_run"),
    "pendulum-v1": ({}, "did you mean Pendulum-v1"),
    "Pendulum-v99": ({}, "did you mean Pendulum-v1"),
    "nowhere:Env-v0": ({}, "nowhere cannot be imported .No module named .nowhere..; is its folder in PYTHONPATH"),
    "probes:ProbeTimeLimt-v0": ({}, "ProbeTimeLimit"),
    "ProbeTwoChoices-v0": ({}, r"actions are MultiDiscrete\(\[2 3\]\), and agents here need a Box or a Discrete"),
    "ProbeOneChoice-v0": ({}, r"its actions, Discrete\(1\), leave no choice"),
    "ProbeCube-v0": ({}, "its images"),
    "Pendulum-v1": ({"gravity": 9}, "it cannot be made with env_kwargs={'gravity': 9} .*unexpected keyword"),
    "cheetah_run": ({"friction": 9}, "it cannot be made with env_kwargs={'friction': 9} .*unexpected keyword"),
    "walker_walk": ({"control_timestep": 1}, "multiple values for keyword argument 'control_timestep'"),
    "ProbeNeedsSize-v0": ({}, "missing 1 required positional argument: 'size'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_be_trained_on_is_refused_in_one_line(name: str) -> None:
    kwargs, message = MISTAKES[name]
    with pytest.raises(UserError, match=message) as caught:
        make_env(name, seed=1, kwargs=kwargs)
    assert "\n" not in str(caught.value) and f"env={name}" in str(caught.value)


def test_any_observation_that_flattens_and_any_shape_of_action() -> None:
    env = make_env("ProbeTuples-v0", seed=1)
    obs, _ = env.reset(seed=1)
    np.testing.assert_allclose(obs, [0, 0, 1, 0.5, -0.5])
    env.step(np.array([-1.0, 1.0], np.float32))
    # An infinite upper bound counts as 1.
    np.testing.assert_allclose(env.unwrapped.last_action, [[-2.0], [1.0]])  # type: ignore[attr-defined]


def test_an_environment_without_a_limit_gets_one() -> None:
    env = make_env("ProbeNoLimit-v0", seed=1, action_repeat=10)
    env.reset(seed=1)
    truncated = [env.step(np.zeros(1, np.float32))[3] for _ in range(100)]
    assert truncated == [False] * 99 + [True]


def test_seeds_of_episodes_differ_by_everything_that_names_them() -> None:
    seeds = {episode_seed(*parts) for parts in [(1, 0, 0, 1), (2, 0, 0, 1), (1, 1, 0, 1), (1, 0, 1, 1), (1, 0, 0, 2)]}
    assert len(seeds) == 5 and episode_seed(1, 0, 0, 1) in seeds
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("name", ["cheetah_run", "lqr_lqr_2_1", "reacher_easy", "Pendulum-v1"])
def test_a_restored_environment_continues_to_the_last_bit(name: str) -> None:
    env, other = (SeededEpisodes(make_env(name, seed=3), run_seed=3) for _ in range(2))
    actions = np.random.default_rng(0).uniform(-1, 1, (50, *env.action_space.shape)).astype(np.float32)
    starts = [env.reset()[0] for _ in range(2)]
    assert not np.array_equal(*starts)
    for action in actions[:30]:
        obs = env.step(action)[0]
    np.testing.assert_array_equal(other.load_state_dict(env.state_dict()), obs)
    for action in actions[30:]:
        (obs, reward, *_), (obs_too, reward_too, *_) = env.step(action), other.step(action)
        np.testing.assert_array_equal(obs, obs_too)
        assert reward == reward_too
    np.testing.assert_array_equal(env.reset()[0], other.reset()[0])


def test_what_needs_opengl() -> None:
    assert not needs_opengl("Pendulum-v1") and needs_opengl("HalfCheetah-v5") and needs_opengl("cheetah_run")
