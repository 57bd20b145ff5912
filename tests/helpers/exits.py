"""An environment and an evaluator that end their process; a run has to stop with a message."""

import os
import sys
from typing import Any

import gymnasium as gym
import numpy as np
from probes import Endless

HOW = {"sys": sys.exit, "os": lambda status: os._exit(status)}  # looks up os._exit when called, as a user's code does


class Ending(Endless):
    """Ends its process with exit code 0.

    Args:
        how: `sys`: by sys.exit; `os`: by os._exit; `fork`: it goes on, but each step forks a child that exits with 7.
        where: the method that ends it: `init`, or `step` or `reset` once 43 steps have begun.
    """

    def __init__(self, how: str = "sys", where: str = "step"):
        self.how, self.where = how, where
        self.steps_since_built = 0
        self._end_in("init")

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict]:
        self._end_in("reset")
        return super().reset(**kwargs)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps_since_built += 1
        if self.how == "fork":
            process = os.fork()
            if process == 0:
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
        self._end_in("step")
        return super().step(action)

    def _end_in(self, method: str) -> None:
        if method == self.where and self.how in HOW and (method == "init" or self.steps_since_built >= 43):
            HOW[self.how](0)


gym.register("ProbeEnding-v0", Ending, max_episode_steps=5)


class EndingEvaluator:
    """An evaluator that ends its process with exit code 0."""

    def __init__(self, make_env: Any, video_path: Any, **_: Any): ...

    def evaluate(self, agent: Any, step: int) -> Any:
        sys.exit(0)

    def close(self) -> None: ...
