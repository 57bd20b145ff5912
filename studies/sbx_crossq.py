"""Trains SBX's CrossQ on a task of the suite as studies/crossq.py, which starts this script, trains ours.

    .venv-bench/bin/python studies/sbx_crossq.py TASK SEED STEPS EVERY FOLDER

The environment, seeds, evaluations and sizes are those of our runs: an actor of 2 x 128 units, critics of 2 x 256,
batches of 256, two environment steps per decision. Writes FOLDER/result.json: evaluations, steps per second, versions.
"""

import json
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import instruments  # noqa: F401  (finds benchmarks/)
import numpy as np
import torch
from sbx import CrossQ
from stable_baselines3.common.callbacks import BaseCallback

from envs.episodes import SeededEpisodes
from envs.make import make_env
from run.evaluation.evaluator import Evaluator

ACTION_REPEAT, SEED_STEPS, EPISODES = 2, 1000, 10


class Evaluate(BaseCallback):  # type: ignore[misc]
    """Evaluates every `every` environment steps and excludes the time for this from the speed."""

    def __init__(self, task: str, seed: int, every: int):
        super().__init__()
        make_eval_env = partial(make_env, task, seed, ACTION_REPEAT)
        self._evaluator = Evaluator(make_eval_env, seed, EPISODES, None, ACTION_REPEAT)
        self._every = every
        self._started_s = 0.0
        self._began_at = 0
        self.rows: list[dict[str, float]] = []
        self._evaluation_s = 0.0

    def _on_step(self) -> bool:
        step = self.num_timesteps * ACTION_REPEAT
        if step == SEED_STEPS + 500 * ACTION_REPEAT:  # all code is compiled by now
            self._started_s, self._began_at = time.perf_counter(), step
        if step % self._every == 0:
            began_s = time.perf_counter()
            returns = self._evaluator.evaluate(Greedy(self.model), step).returns
            self._evaluation_s += time.perf_counter() - began_s
            self.rows.append({"step": step, "episode_reward": float(np.mean(returns))})
        return True

    def steps_per_second(self) -> float:
        seconds = time.perf_counter() - self._started_s - self._evaluation_s
        return (self.num_timesteps * ACTION_REPEAT - self._began_at) / seconds


class Greedy:
    """Adapts an SBX model to the interface that our evaluator expects."""

    training = False

    def __init__(self, model: Any):
        self._model = model

    def train(self, training: bool = True) -> None:
        pass

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        return self._model.predict(obs, deterministic=not sample)[0]


def main() -> None:
    task, seed, steps, every = sys.argv[1], *(int(word) for word in sys.argv[2:5])
    torch.set_num_threads(1)
    env = SeededEpisodes(make_env(task, seed, ACTION_REPEAT), seed)
    model = CrossQ(
        "MlpPolicy",
        env,
        learning_starts=SEED_STEPS // ACTION_REPEAT,
        buffer_size=steps // ACTION_REPEAT,
        batch_size=256,
        policy_kwargs={"net_arch": {"pi": [128, 128], "qf": [256, 256]}},
        seed=seed,
    )
    callback = Evaluate(task, seed, every)
    model.learn(steps // ACTION_REPEAT, callback, log_interval=1000)
    result = {"evaluations": callback.rows, "steps_per_second": callback.steps_per_second()}
    result["versions"] = {name: version(name) for name in ("sbx-rl", "stable-baselines3", "jax")}
    folder = Path(sys.argv[5])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
