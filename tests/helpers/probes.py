"""Environments with known values, and helpers to train on them."""

from pathlib import Path
from typing import Any

import composed
import gymnasium as gym
import numpy as np

from agent.sac import SACAgent
from run.evaluation.evaluator import Evaluation
from run.workspace import Workspace
from settings.types import PositiveInt


class Probe(gym.Env):
    """Observes its step number, divided by 10; subclasses define the rewards and when an episode ends."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    num_steps = 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.taken = 0
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.taken += 1
        reward = self.reward(float(action[0]))
        return self._obs(), reward, self.taken == self.num_steps, False, {}

    def reward(self, action: float) -> float:
        return 1.0

    def _obs(self) -> np.ndarray:
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
    """Pays 1 at every step and always looks the same; only a time limit ends it."""

    num_steps = -1

    def _obs(self) -> np.ndarray:
        return np.zeros(1, np.float32)


class Paying(Endless):
    """Pays `pay` at every step."""

    def __init__(self, pay: float):
        self.pay = pay

    def reward(self, action: float) -> float:
        return self.pay


class Tuples(Probe):
    """Has nested observations of several kinds, and a matrix of actions, each with its own bounds."""

    observation_space = gym.spaces.Dict(
        {"b": gym.spaces.Box(-1, 1, (2,), np.float64), "a": gym.spaces.Tuple([gym.spaces.Discrete(3)])}
    )
    action_space = gym.spaces.Box(np.array([[-2.0], [0.0]]), np.array([[2.0], [np.inf]]), (2, 1), np.float64)
    num_steps = 3

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self.last_action = action
        self.taken += 1
        return self._obs(), 1.0, self.taken == self.num_steps, False, {}

    def _obs(self) -> Any:
        return {"b": np.array([0.5, -0.5]), "a": (2,)}


class Numbered(Probe):
    """Observes its episode's number and its step; each episode's seed determines its length, 3 to 7 steps."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        _, info = super().reset(seed=seed)
        self.episode += 1
        self.num_steps = int(self.np_random.integers(3, 8))
        return self._obs(), info

    def _obs(self) -> np.ndarray:
        return np.array([self.episode, self.taken], np.float32)


class Drawn(Probe):
    """Observes a number and its step; each episode's seed determines the number and the length, 3 to 7 steps."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        _, info = super().reset(seed=seed)
        self.num_steps, self.number = int(self.np_random.integers(3, 8)), float(self.np_random.normal())
        self.taken = 0
        return self._obs(), info

    def reward(self, action: float) -> float:
        return self.number * action + float(self.np_random.normal())

    number = 0.0

    def _obs(self) -> np.ndarray:
        return np.array([self.number, self.taken], np.float32)


class Choices(Drawn):
    """Like Drawn, with the actions -1, 0 and 1."""

    action_space: gym.Space = gym.spaces.Discrete(3, start=-1)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        return super().step(np.array([action]))


class TwoChoices(Choices):
    action_space = gym.spaces.MultiDiscrete([2, 3])


class OneChoice(Choices):
    action_space = gym.spaces.Discrete(1)


class Images(Probe):
    """Observes images (height, width, channels) that show its step and a number drawn from the episode's seed."""

    observation_space: gym.Space = gym.spaces.Box(0, 255, (8, 10, 3), np.uint8)
    number = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(256))
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self.taken += 1
        return self._obs(), float(action[0]), self.taken == 7, False, {}

    def _obs(self) -> Any:
        picture = np.full((8, 10, 3), self.taken, np.uint8)
        picture[2] = self.number
        picture[:, 3, 1] = 200
        return picture


class ImageChoices(Images):
    """Like Images, with the actions -1, 0 and 1."""

    action_space = gym.spaces.Discrete(3, start=-1)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        return super().step(np.array([action]))


class Planes(Images):
    """Like Images, channels first."""

    observation_space = gym.spaces.Box(0, 255, (3, 8, 10), np.uint8)

    def _obs(self) -> np.ndarray:
        return super()._obs().transpose(2, 0, 1)


class Grey(Images):
    """One channel of Images, without a channel dimension."""

    observation_space = gym.spaces.Box(0, 255, (8, 10), np.uint8)

    def _obs(self) -> np.ndarray:
        return super()._obs()[..., 1]


class Pairs(Images):
    """Observes two stacked frames: an image and its negative."""

    observation_space = gym.spaces.Box(0, 255, (2, 8, 10, 3), np.uint8)

    def _obs(self) -> np.ndarray:
        return np.stack([super()._obs(), 255 - super()._obs()])


class Mixed(Images):
    """Observes an image with an odd number of bytes, a second image, and numbers in two places."""

    observation_space = gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, (9, 9, 3), np.uint8),
            "depth": gym.spaces.Box(0, 255, (9, 9), np.uint8),
            "speed": gym.spaces.Box(-1, 1, (2,)),
            "state": gym.spaces.Tuple([gym.spaces.Box(-9, 9, (1,), np.float64), gym.spaces.Discrete(2)]),
        }
    )

    def _obs(self) -> Any:
        camera = np.full((9, 9, 3), self.taken, np.uint8)
        camera[2] = self.number
        speed = np.array([self.taken / 10, -self.number / 256], np.float32)
        depth = np.arange(81, dtype=np.uint8).reshape(9, 9) + self.taken
        state = (np.array([self.taken / 7]), self.taken % 2)
        return {"camera": camera, "depth": depth.astype(np.uint8), "speed": speed, "state": state}


class Privileged(Probe):
    """Pays the first number of the goal observed before the step, whatever the action; each step draws a new goal."""

    observation_space = gym.spaces.Dict({key: gym.spaces.Box(-9, 9, (2,)) for key in ("place", "goal", "touch")})
    num_steps = 5

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        gym.Env.reset(self, seed=seed)
        self.taken, self.goal = 0, self.np_random.normal(size=2)
        return self._obs(), {}

    def reward(self, action: float) -> float:
        paid, self.goal = self.goal[0], self.np_random.normal(size=2)
        return float(paid)

    def _obs(self) -> Any:
        return {"place": np.array([self.taken, 1.0]), "goal": self.goal, "touch": np.zeros(2) - self.taken}


class Cube(Images):
    observation_space = gym.spaces.Box(0, 255, (8, 8, 8), np.uint8)


class NeedsSize(Probe):
    def __init__(self, size: int):
        self.size = size


class Unbuildable(Probe):
    def __init__(self) -> None:
        self.size = 1 / 0


class Faulty(Endless):
    """Breaks in its 43rd step since it was built."""

    steps_since_built = 0

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps_since_built += 1
        if self.steps_since_built == 43:
            raise ValueError("lost\nits way")
        return super().step(action)

    def render(self) -> np.ndarray:
        raise NotImplementedError


class FaultyReset(Faulty):
    """Breaks in the reset after 40 steps."""

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict]:
        if self.steps_since_built == 40:
            raise KeyError("no way back")
        return super().reset(**kwargs)


for cls in (NeedsSize, Unbuildable):
    gym.register(f"Probe{cls.__name__}-v0", cls, max_episode_steps=5)
for faulty in (Faulty, FaultyReset, Paying):
    gym.register(f"Probe{faulty.__name__}-v0", faulty, max_episode_steps=5)
PLAIN = (Probe, TwoSteps, ActionMatters, Tuples, Numbered, Drawn, Choices, TwoChoices, OneChoice, Privileged)
for cls in PLAIN:
    gym.register(f"Probe{cls.__name__.replace('Probe', 'OneStep')}-v0", cls, max_episode_steps=100)
for images in (Images, ImageChoices, Planes, Grey, Pairs, Mixed, Cube):
    gym.register(f"Probe{images.__name__}-v0", images, max_episode_steps=100)
gym.register("ProbeTimeLimit-v0", Endless, max_episode_steps=5)
gym.register("ProbeNoLimit-v0", Endless)
gym.register("ProbeSolved-v0", Endless, max_episode_steps=5, reward_threshold=5.0)


class ConstantEvaluator:
    """A user's own evaluator: every return is the step number."""

    def __init__(
        self, make_env: Any, video_path: Any, action_repeat: int, num_episodes: PositiveInt, seed: int, sample: bool
    ):
        self.num_episodes = num_episodes

    def evaluate(self, agent: Any, step: int) -> Evaluation:
        return Evaluation([float(step)] * self.num_episodes, [7] * self.num_episodes)

    def close(self) -> None: ...


class ActsItself(SACAgent):
    """An agent that acts differently from its policy."""

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        return -super().act(obs, sample)


SMALL = (
    *(
        "device=cpu",
        "execution=eager",  # recording an update takes longer than most of these runs
        "save_video=false",
        "save_figure=false",
        "log_save_tb=false",
        "num_train_steps=600",
        "num_seed_steps=100",
    ),
    "checkpoint_frequency=0",
    *("agent.batch_size=16", "agent.critic.hidden_dim=16", "agent.actor.hidden_dim=16", "num_eval_episodes=2"),
)


def workspace(folder: Path, *overrides: str) -> Workspace:
    """Makes a workspace in `folder`, small unless the overrides say otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    return Workspace(composed.settings(*SMALL, *overrides), folder)


def train(folder: Path, *overrides: str) -> Workspace:
    """Runs such a workspace to its end, and returns it closed."""
    trained = workspace(folder, *overrides)
    trained.run()
    trained.close()
    return trained
