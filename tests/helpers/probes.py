"""Environments with known values, and helpers to train on them."""

from functools import partial
from pathlib import Path
from typing import Any

import composed
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from agent.sac import SACAgent
from run.evaluation.evaluator import Evaluation
from run.workspace import Workspace
from settings.types import PositiveInt

numbers = partial(Box, -np.inf, np.inf)
pixels = partial(Box, 0, 255, dtype=np.uint8)


class Probe(gym.Env):
    """Observes its step number, divided by 10, and pays `pay`; subclasses say what differs.

    Args:
        attributes: replace those of the class.
    """

    observation_space: gym.Space = numbers((1,))
    action_space: gym.Space = Box(-1.0, 1.0, (1,))
    num_steps = 1
    pay = 1.0

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.taken = 0
        self.begin()
        return self._obs(), {}

    def begin(self) -> None:
        """Draws what differs between episodes."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self.last_action = action
        self.taken += 1
        reward = self.reward(float(np.ravel(action)[0]))
        return self._obs(), reward, self.taken == self.num_steps, False, {}

    def reward(self, action: float) -> float:
        return self.pay

    def _obs(self) -> Any:
        return np.array([self.taken / 10], np.float32)


class TwoSteps(Probe):
    """Pays 1 only at the second step, so Q of the first is gamma."""

    num_steps = 2

    def reward(self, action: float) -> float:
        return float(self.taken == 2)


class ActionMatters(Probe):
    """Pays most for the action 0.5."""

    def reward(self, action: float) -> float:
        return -((action - 0.5) ** 2)


class Endless(Probe):
    """Always looks the same; only a time limit ends it."""

    num_steps = -1

    def _obs(self) -> np.ndarray:
        return np.zeros(1, np.float32)


class Tuples(Probe):
    """Has nested observations of several kinds, and a matrix of actions, each with its own bounds."""

    observation_space = Dict({"b": Box(-1, 1, (2,), np.float64), "a": Tuple([Discrete(3)])})
    action_space = Box(np.array([[-2.0], [0.0]]), np.array([[2.0], [np.inf]]), (2, 1), np.float64)
    num_steps = 3

    def _obs(self) -> Any:
        return {"b": np.array([0.5, -0.5]), "a": (2,)}


class Numbered(Probe):
    """Observes its episode's number and its step; each episode's seed determines its length, 3 to 7 steps."""

    observation_space = numbers((2,))
    number = 0.0

    def begin(self) -> None:
        self.num_steps = int(self.np_random.integers(3, 8))
        self.number += 1

    def _obs(self) -> np.ndarray:
        return np.array([self.number, self.taken], np.float32)


class Drawn(Numbered):
    """Its number is drawn too, and its rewards depend on the number, the action and noise."""

    def begin(self) -> None:
        super().begin()
        self.number = float(self.np_random.normal())

    def reward(self, action: float) -> float:
        return self.number * action + float(self.np_random.normal())


class Images(Probe):
    """Observes images (height, width, channels) that show its step and a number drawn from the episode's seed."""

    observation_space = pixels((8, 10, 3))
    arrange = staticmethod(np.asarray)
    num_steps = 7

    def begin(self) -> None:
        self.number = int(self.np_random.integers(256))

    def reward(self, action: float) -> float:
        return action

    def _obs(self) -> Any:
        picture = np.full((8, 10, 3), self.taken, np.uint8)
        picture[2] = self.number
        picture[:, 3, 1] = 200
        return self.arrange(picture)


class Mixed(Images):
    """Observes an image with an odd number of bytes, a second image, and numbers in two places."""

    observation_space = Dict(
        {
            "camera": pixels((9, 9, 3)),
            "depth": pixels((9, 9)),
            "speed": Box(-1, 1, (2,)),
            "state": Tuple([Box(-9, 9, (1,), np.float64), Discrete(2)]),
        }
    )

    def _obs(self) -> Any:
        camera = np.full((9, 9, 3), self.taken, np.uint8)
        camera[2] = self.number
        speed = np.array([self.taken / 10, -self.number / 256], np.float32)
        depth = np.arange(self.taken, 81 + self.taken, dtype=np.uint8).reshape(9, 9)
        return {"camera": camera, "depth": depth, "speed": speed, "state": (np.array([self.taken / 7]), self.taken % 2)}


class Privileged(Probe):
    """Pays the first number of the goal observed before the step, whatever the action; each step draws a new goal."""

    observation_space = Dict({key: Box(-9, 9, (2,)) for key in ("place", "goal", "touch")})
    num_steps = 5

    def begin(self) -> None:
        self.goal = self.np_random.normal(size=2)

    def reward(self, action: float) -> float:
        paid, self.goal = self.goal[0], self.np_random.normal(size=2)
        return float(paid)

    def _obs(self) -> Any:
        return {"place": np.array([self.taken, 1.0]), "goal": self.goal, "touch": np.zeros(2) - self.taken}


class Goal(Probe):
    """Each step's `info` has the action as `moved`, an array of one number; the last has `is_success`.

    An episode succeeds if its place, a random start plus all actions, ends above 0; so episodes differ.
    """

    num_steps = 7

    def begin(self) -> None:
        self._place = float(self.np_random.uniform(-1, 1))

    def reward(self, action: float) -> float:
        self._place += action
        return -abs(self._place)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        *step, info = super().step(action)
        info |= {"moved": np.array([action[0]]), "taken": self.taken, "label": "a word"}
        info |= {"is_success": np.bool_(self._place > 0)} if self.taken == self.num_steps else {}
        return *step, info  # type: ignore[return-value]

    def _obs(self) -> np.ndarray:
        return np.array([self._place], np.float32)


class Faulty(Endless):
    """Breaks in its 43rd step since it was built."""

    steps_since_built = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps_since_built += 1
        if self.steps_since_built == 43:
            raise ValueError("lost\nits way")
        return super().step(action)


class FaultyReset(Faulty):
    """Breaks in the reset after 40 steps."""

    def begin(self) -> None:
        if self.steps_since_built == 40:
            raise KeyError("no way back")


def register(name: str, entry_point: Any, limit: int | None = 100, **attributes: Any) -> None:
    gym.register(f"Probe{name}-v0", entry_point, max_episode_steps=limit, kwargs=attributes)


for probe in (TwoSteps, ActionMatters, Tuples, Numbered, Drawn, Privileged, Images, Mixed):
    register(probe.__name__, probe)
register("OneStep", Probe)
register("TimeLimit", Endless, 5)
register("NoLimit", Endless, None)
register("Goal", Goal, 50)
register("Faulty", Faulty, 5)
register("FaultyReset", FaultyReset, 5)
register("NeedsSize", lambda size: None)
register("Choices", Drawn, action_space=Discrete(3, start=-1))
register("TwoChoices", Probe, action_space=MultiDiscrete([2, 3]))
register("OneChoice", Probe, action_space=Discrete(1))
register("Cube", Probe, observation_space=pixels((8, 8, 8)))
register("Planes", Images, observation_space=pixels((3, 8, 10)), arrange=lambda picture: picture.transpose(2, 0, 1))
register("Grey", Images, observation_space=pixels((8, 10)), arrange=lambda picture: picture[..., 1])
register("Pairs", Images, observation_space=pixels((2, 8, 10, 3)), arrange=lambda x: np.stack([x, 255 - x]))


class CountingEvaluator:
    """A user's own evaluator: every return is the number of evaluations so far."""

    def __init__(self, make_env: Any, video_path: Any, action_repeat: int, num_episodes: PositiveInt, seed: int):
        self.num_episodes, self.num_evaluations = num_episodes, 0

    def evaluate(self, agent: Any, step: int) -> Evaluation:
        self.num_evaluations += 1
        return Evaluation([float(self.num_evaluations)] * self.num_episodes, [7] * self.num_episodes)

    def state_dict(self) -> dict[str, Any]:
        return {"num_evaluations": self.num_evaluations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_evaluations = state["num_evaluations"]

    def close(self) -> None: ...


class ActsItself(SACAgent):
    """An agent that acts differently from its policy."""

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        return -super().act(obs, sample)


SMALL = (
    *("device=cpu", "execution=eager", "save_video=false", "save_figure=false", "log_save_tb=false"),
    *("num_train_steps=600", "num_seed_steps=100", "checkpoint_frequency=0", "num_eval_episodes=2"),
    *("agent.batch_size=16", "agent.critic.hidden_dim=16", "agent.actor.hidden_dim=16"),
)  # eager: recording an update takes longer than most of these runs


def workspace(folder: Path, *overrides: str) -> Workspace:
    """Makes a workspace in `folder`, small unless the overrides say otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    return Workspace(composed.settings(*SMALL, *overrides), folder)


def train(folder: Path, *overrides: str) -> Workspace:
    """Runs such a workspace to its end, and returns it closed."""
    trained = workspace(folder, *overrides)
    trained.run()
    return trained
