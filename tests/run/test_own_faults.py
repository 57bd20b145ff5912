"""Faults of the user's own environments and wrappers, beside exceptions, are one line that names them."""

import itertools
from typing import Any

import composed
import gymnasium as gym
import numpy as np
import pytest
from agents import make_agent

from dmc2gym import ActionRepeat
from dmc2gym.wrappers import OwnActions
from envs.adapter import adapt, wrap
from launch.argv import parse_line
from run.environments import make_train_envs
from run.evaluation.evaluator import Evaluator
from run.saving import trust
from utils import EnvError, RunError, UserError

COPIES = itertools.count(1)


def box(*shape: int, low: float = -1.0, high: float = 1.0) -> gym.spaces.Box:
    return gym.spaces.Box(low, high, shape, np.float32)


class Still(gym.Env):
    """Nothing happens for five steps of reward 1."""

    reward: Any = 1.0

    def __init__(self, obs_dim: int = 17, action: gym.spaces.Box | None = None) -> None:
        self.observation_space: Any = box(obs_dim)
        self.action_space = action or box(6)

    def reset(self, **how: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.left = 5
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action: Any) -> Any:
        action *= 0  # what was given is the environment's to change
        self.left -= 1
        return np.zeros(self.observation_space.shape, np.float32), self.reward, self.left == 0, False, {}


class Growing(Still):
    """Each copy has one more number in its observations."""

    def __init__(self) -> None:
        super().__init__(next(COPIES))


class Hollow(gym.Wrapper):
    """Forgets `super().__init__(env)`."""

    def __init__(self, env: gym.Env) -> None:
        self.env = env


gym.register("Growing-v0", Growing)


def test_copies_have_the_same_spaces() -> None:
    with pytest.raises(UserError, match=r"^env=Growing-v0: its observations and actions have to be the same in every"):
        make_train_envs(composed.settings("env=Growing-v0", "num_envs=2"))


def test_an_evaluations_return_is_finite() -> None:
    agent, env = make_agent("agent.actor.hidden_dim=8", "agent.critic.hidden_dim=8"), Still()
    evaluator = Evaluator(lambda render: adapt(env, "Still"), seed=1, num_episodes=1, video_path=None)
    assert evaluator.evaluate(agent, 0).returns == [5.0]
    env.reward = np.nan
    with pytest.raises(RunError, match=r"^an evaluation's return\[0\] is nan$"):
        evaluator.evaluate(agent, 0)


def test_an_action_is_held_even_if_the_environment_changes_it() -> None:
    seen: list[float] = []

    class Seen(Still):
        def step(self, action: Any) -> Any:
            seen.extend(action.tolist())
            return super().step(action)

    env = ActionRepeat(Seen(), 2)
    env.reset()
    env.step(np.full(6, 0.5))
    assert seen == [0.5] * 12


def test_a_reward_is_a_number() -> None:
    env = Still()
    env.reward = None
    env.reset()
    with pytest.raises(TypeError, match=r"^the reward is None; a number is needed$"):
        ActionRepeat(env, 1).step(np.zeros(6))


def test_an_info_is_a_dictionary() -> None:
    class Without(Still):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], None

    env = adapt(Without(), "mine")
    env.reset()
    with pytest.raises(EnvError, match=r"TypeError.*step gave NoneType as info, and no dictionary"):
        env.step(np.zeros(6))


def test_what_is_forgotten_is_named() -> None:
    env = Still()
    env.observation_space = None
    with pytest.raises(UserError, match=r"^env=mine: its observation_space is None, and no space of Gymnasium's$"):
        adapt(env, "mine")
    with pytest.raises(UserError, match=r"^env_wrappers: Hollow cannot be put around env=mine .*_action_space"):
        wrap(Still(), "mine", [Hollow])


@pytest.mark.parametrize("missing", ["action_space", "observation_space"])
def test_a_missing_space_is_named(missing: str) -> None:
    env = Still()
    delattr(env, missing)
    with pytest.raises(UserError, match=f"^env=mine: it has no {missing}$"):
        adapt(env, "mine")


@pytest.mark.parametrize("wrong", ["False", None, {"TimeLimit.truncated": False}, 0.5, [False, True]])
@pytest.mark.parametrize("place", [2, 3], ids=["terminated", "truncated"])
def test_a_flag_is_true_or_false(place: int, wrong: Any) -> None:
    class Flags(Still):
        def step(self, action: Any) -> Any:
            returned: list[Any] = list(super().step(action))
            returned[place] = self.flag
            return tuple(returned)

    env = Flags()
    adapted = adapt(env, "mine")
    adapted.reset()
    for right in (False, True, np.False_, np.True_, 0, 1, np.array([True])):
        env.flag = right
        flag = adapted.step(np.zeros(6))[place]
        assert type(flag) is bool and flag == bool(right)
        adapted.reset()
    env.flag = wrong
    with pytest.raises(
        EnvError, match=r"^env=mine: (step gave (terminated|truncated)=.*; True or False is needed|its )"
    ):
        adapted.step(np.zeros(6))


def test_what_step_and_reset_return_is_said() -> None:
    class Old(Still):
        def step(self, action: Any) -> Any:
            return super().step(action)[:4]

    env = adapt(Old(), "mine")
    env.reset()
    with pytest.raises(EnvError, match=r"\(Gymnasium's step returns obs, reward, terminated, truncated, info\)$"):
        env.step(np.zeros(6))


def test_an_error_of_the_system_in_an_environment_is_its_error() -> None:
    class Lost(Still):
        def step(self, action: Any) -> Any:
            raise ConnectionResetError("the simulator closed the connection")

    env = adapt(Lost(), "mine")
    env.reset()
    with pytest.raises(EnvError, match=r"^env=mine: its step raised ConnectionResetError: the simulator closed"):
        env.step(np.zeros(6))


def test_every_action_of_integers_can_be_taken() -> None:
    for space in (gym.spaces.Box(0, 1, (1,), np.int64), gym.spaces.Box(-1, 1, (1,), np.int8)):
        own = OwnActions(space)
        taken = {int(own.of(np.array([action]))[0]) for action in np.linspace(-0.99, 0.99, 99)}
        assert taken == set(range(int(space.low[0]), int(space.high[0]) + 1))


def test_an_image_is_of_bytes() -> None:
    env = Still()
    env.observation_space = gym.spaces.Box(0, 255, (32, 32, 3), np.uint8)  # and gives floats
    adapted = adapt(env, "mine")
    with pytest.raises(
        EnvError, match=r"^env=mine: it gave an image of float32 where its observation_space has uint8$"
    ):
        adapted.reset()


def test_infinite_bounds_have_a_key() -> None:
    with pytest.raises(
        UserError, match=r"leave no choice .*; action_bounds replaces infinite bounds, which count as -1"
    ):
        adapt(Still(action=box(1, low=5.0, high=np.inf)), "mine")


def test_a_module_of_the_users_is_none_of_pythons() -> None:
    with pytest.raises(UserError, match=r"^env=turtle:Mine-v0: Python has a module turtle, .*; rename it$"):
        trust.refuse_standard("turtle:Mine-v0")
    for name in ("mine:Mine-v0", "cheetah_run", "turtle"):
        trust.refuse_standard(name)


def test_no_preset_is_the_default() -> None:
    assert parse_line(["preset=null", "seed=3"]).argv == ["seed=3"]


def test_an_evaluations_observation_is_finite() -> None:
    class Broken(Still):
        def step(self, action: Any) -> Any:
            obs, *outcome = super().step(action)
            obs[3] = np.nan
            return obs, *outcome

    evaluator = Evaluator(lambda render: adapt(Broken(), "Broken"), seed=1, num_episodes=1, video_path=None)
    with pytest.raises(RunError, match=r"^an evaluation's observation\[0, 3\] is nan$"):
        evaluator.evaluate(make_agent("agent.actor.hidden_dim=8", "agent.critic.hidden_dim=8"), 0)
