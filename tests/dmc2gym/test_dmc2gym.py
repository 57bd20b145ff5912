"""The suite as Gymnasium environments: every task, its spaces, limits and action repeats."""

import gymnasium as gym
import numpy as np
import pytest
from dm_control import suite
from gymnasium.utils.env_checker import check_env

import dmc2gym
from dmc2gym.wrappers import ActionMap
from settings.env_ids import SUITE_TASKS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
FIRST = {domain: f"{domain}_{task}" for domain, task in reversed(SUITE_TASKS.values())}.values()  # of each domain


def test_the_suite_has_all_its_tasks() -> None:
    assert list(SUITE_TASKS.values()) == list(suite.ALL_TASKS) and len(SUITE_TASKS) == 51


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in FIRST else pytest.mark.thorough) for name in SUITE_TASKS],
)
def test_every_task_passes_gymnasiums_checker(name: str, request: pytest.FixtureRequest) -> None:
    if name == "quadruped_escape":
        request.getfixturevalue("opengl")
    env = dmc2gym.make(*SUITE_TASKS[name], seed=1)
    check_env(env, skip_render_check=True)
    obs, _ = env.reset(seed=1)
    assert obs.dtype == np.float32 and env.action_space == gym.spaces.Box(-1, 1, env.action_space.shape, np.float32)
    obs, reward, *_ = env.step(env.action_space.sample())
    assert np.isfinite(obs).all() and abs(reward) < 1e4  # actions up to lqr's bounds of 1e10 would give -1e18
    env.close()


@pytest.mark.parametrize(
    ("name", "frame_skip", "decisions", "last_repeats"), [("lqr_lqr_2_1", 1, 1000, 1), ("cartpole_balance", 3, 334, 1)]
)
def test_an_episode_is_a_thousand_steps_and_is_truncated(
    name: str, frame_skip: int, decisions: int, last_repeats: int
) -> None:
    env = dmc2gym.make(*SUITE_TASKS[name], seed=1, frame_skip=frame_skip)
    env.reset(seed=1)
    steps, done = [], False
    while not done:
        _, _, terminated, truncated, info = env.step(np.full(env.action_space.shape, 0.3, np.float32))
        steps.append(info["repeats"])
        done = terminated or truncated
    assert truncated and not terminated
    assert (len(steps), sum(steps), steps[-1]) == (decisions, 1000, last_repeats)


def test_no_rounding_leaves_the_bounds_and_every_integer_can_be_taken() -> None:
    rng = np.random.default_rng(0)
    own = ActionMap(gym.spaces.Box(rng.uniform(-3, 0, 1000), rng.uniform(0.01, 3, 1000), dtype=np.float64))
    for end in (-1.0, 1.0):
        assert own.space.contains(own.to_env(np.full(1000, end, np.float32)))
    for space in (gym.spaces.Box(0, 1, (1,), np.int64), gym.spaces.Box(-1, 1, (1,), np.int8)):
        of_integers = ActionMap(space)
        taken = {int(of_integers.to_env(np.array([action]))[0]) for action in np.linspace(-0.99, 0.99, 99)}
        assert taken == set(range(int(space.low[0]), int(space.high[0]) + 1))


@pytest.mark.parametrize("frame_skip", [1, 3])
def test_info_has_the_physics_state_before_the_action_and_the_discount(frame_skip: int) -> None:
    env = dmc2gym.make("cheetah", "run", seed=1, frame_skip=frame_skip)
    physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
    _, info = env.reset()
    np.testing.assert_array_equal(info["internal_state"], physics.get_state())
    for _ in range(3):
        before = physics.get_state()
        *_, info = env.step(np.ones(6, np.float32))
        assert info["discount"] == 1.0
        np.testing.assert_array_equal(info["internal_state"], before)
        assert not np.array_equal(physics.get_state(), before)


def test_a_termination_is_told_from_a_time_limit() -> None:
    env = dmc2gym.make("humanoid", "run_pure_state", seed=1)
    env.reset()
    env.unwrapped._env.task.get_termination = lambda _: 0.0  # type: ignore[attr-defined]
    _, _, terminated, truncated, info = env.step(np.zeros(env.action_space.shape, np.float32))
    assert terminated and not truncated and info["discount"] == 0.0


def test_pixels(opengl: None) -> None:
    env = dmc2gym.make("cheetah", "run", seed=1, visualize_reward=False, from_pixels=True)
    obs, _ = env.reset(seed=1)
    assert obs.shape == (3, 84, 84) and obs in env.observation_space and obs.std() > 5  # the image is not blank
    last = dmc2gym.make("cheetah", "run", 1, False, True, height=32, width=48, channels_first=False)
    assert last.reset(seed=1)[0].shape == (32, 48, 3)
    with pytest.raises(ValueError, match="visualize_reward"):  # what colours would be learned from
        dmc2gym.make("cheetah", "run", from_pixels=True)
