"""An environment that ends its process, which a run has to survive."""

import os
import sys
from typing import Any

import gymnasium as gym
import numpy as np
from probes import Endless

HOW = {"sys": sys.exit, "os": lambda status: os._exit(status)}  # looked up when it is called, as a user's code does


class Ending(Endless):
    """Ends its process with exit code 0.

    Args:
        how: `sys`: by sys.exit; `os`: by os._exit; `fork`: only a process that each step forks, with exit code 7.
        where: the method that does it; a step or a reset does it from the 43rd step on.
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
