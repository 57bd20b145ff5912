"""Environments by name, their arguments, and episodes that depend only on their seeds."""

import numpy as np
import pytest

from envs.episodes import SeededEpisodes, episode_seed
from envs.make import make_env, needs_opengl, reward_threshold
from utils import UserError


@pytest.mark.parametrize(
    "name", ["ball_in_cup_catch", "point_mass_easy", "humanoid_CMU_run", "lqr_lqr_6_2", "Pendulum-v1", "HalfCheetah-v5"]
)
def test_names_of_either_family(name: str) -> None:
    env = make_env(name, seed=1, action_repeat=2)
    obs, _ = env.reset(seed=1)
    assert obs.dtype == np.float32 and obs.ndim == 1
    *_, info = env.step(env.action_space.sample())
    assert info["repeats"] == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cheeta_run", "did you mean cheetah_run"),
        ("pendulum-v1", "did you mean Pendulum-v1"),
        ("CartPol-v1", "did you mean CartPole-v1"),
        ("Pendulum-v99", "no such task"),
        (
            "nowhere:Env-v0",
            "nowhere cannot be imported .No module named .nowhere..; if it is your own, name .*PYTHONPATH",
        ),
        ("", "no such task"),
        ("ProbeTwoChoices-v0", r"actions are MultiDiscrete\(\[2 3\]\), and agents here need a Box or a Discrete"),
        ("ProbeOneChoice-v0", r"its actions, Discrete\(1\), leave no choice"),
        ("ProbeCube-v0", r"observations are images \(8, 8, 8\)"),
        ("ProbeSequences-v0", "cannot be flattened"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make_env(name, seed=1)
    assert "\n" not in str(caught.value)
    assert f"env={name}" in str(caught.value)


def test_actions_reach_the_tasks_own_bounds() -> None:
    env = make_env("Pendulum-v1", seed=1)
    env.reset(seed=1)
    env.step(np.array([1.0], np.float32))
    assert env.unwrapped.last_u == 2.0
    env.step(np.array([-0.25], np.float32))
    assert env.unwrapped.last_u == -0.5


def test_any_observation_that_flattens_and_any_shape_of_action() -> None:
    env = make_env("ProbeTuples-v0", seed=1)
    obs, _ = env.reset(seed=1)
    np.testing.assert_allclose(obs, [0, 0, 1, 0.5, -0.5])
    env.step(np.array([-1.0, 1.0], np.float32))
    np.testing.assert_allclose(env.unwrapped.last_action, [[-2.0], [1.0]])  # an infinite upper bound counts as 1


def test_an_environment_without_a_limit_gets_one() -> None:
    env = make_env("ProbeNoLimit-v0", seed=1, action_repeat=10)
    env.reset(seed=1)
    truncated = [env.step(np.zeros(1, np.float32))[3] for _ in range(100)]
    assert truncated == [False] * 99 + [True]


def test_seeds_of_episodes_differ_by_everything_that_names_them() -> None:
    seeds = {episode_seed(*parts) for parts in [(1, 0, 0, 1), (2, 0, 0, 1), (1, 1, 0, 1), (1, 0, 1, 1), (1, 0, 0, 2)]}
    assert len(seeds) == 5
    assert episode_seed(1, 0, 0, 1) == episode_seed(1, 0, 0, 1)
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("name", ["cheetah_run", "lqr_lqr_2_1", "reacher_easy", "Pendulum-v1"])
def test_a_restored_environment_continues_to_the_last_bit(name: str) -> None:
    def make() -> SeededEpisodes:
        return SeededEpisodes(make_env(name, seed=3), run_seed=3)

    env, actions = make(), np.random.default_rng(0)
    starts = [env.reset()[0] for _ in range(2)]
    assert not np.array_equal(*starts)

    def step(target: SeededEpisodes, action: np.ndarray) -> tuple:
        obs, reward, *_ = target.step(action)
        return obs.tobytes(), reward

    shape = env.action_space.shape
    for _ in range(30):
        obs = env.step(actions.uniform(-1, 1, shape).astype(np.float32))[0]
    other = make()
    np.testing.assert_array_equal(other.load_state_dict(env.state_dict()), obs)
    rest = actions.uniform(-1, 1, (20, *shape)).astype(np.float32)
    assert [step(env, action) for action in rest] == [step(other, action) for action in rest]
    np.testing.assert_array_equal(env.reset()[0], other.reset()[0])


def test_what_gymnasium_says_of_a_packages_environment() -> None:
    assert reward_threshold("probes:ProbeSolved-v0") == 5.0
    assert reward_threshold("cheetah_run") is None and reward_threshold("Pendulum-v1") is None
    assert not needs_opengl("probes:ProbeSolved-v0") and needs_opengl("HalfCheetah-v5")
