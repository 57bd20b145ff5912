"""Where the time of a training run goes: cheetah_run, 256 units, batches of 256, logs on, evaluation and video off.

Runs the Workspace that train.py runs, with a clock around what its loop calls, and between two such runs the update
and the environment alone. Prints one JSON object:

    step_ms         median milliseconds of a step of the loop, and of its parts
    train_overhead  a whole step over an update and an environment step alone, each timed by itself, caches warm
    train_overhead_in_turns   the same where the two take turns, as in training, and find the caches full of the other
    share_of_evaluation_and_logging   of a run's time at the default frequencies, video off
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cli
import envs
import settings
from train import Workspace

NUM_STEPS, SEED_STEPS, ROUNDS = 2500, 500, 5
OVERRIDES = [
    "env=cheetah_run",
    "agent.batch_size=256",
    "agent.actor.hidden_dim=256",
    "agent.critic.hidden_dim=256",
    f"num_seed_steps={SEED_STEPS}",
    f"num_train_steps={NUM_STEPS}",
    "replay_buffer_capacity=1_000_000",
    "save_video=false",
    "save_figure=false",
]
DEFAULT_EVAL_FREQUENCY = 10_000


class Clock:
    """Wraps methods of objects and keeps how long each call took."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def around(self, thing: Any, method: str, name: str) -> None:
        inner: Callable[..., Any] = getattr(thing, method)
        seconds = self.seconds.setdefault(name, [])

        def timed(*args: Any, **kwargs: Any) -> Any:
            started_s = time.perf_counter()
            result = inner(*args, **kwargs)
            seconds.append(time.perf_counter() - started_s)
            return result

        setattr(thing, method, timed)


def train_once(clock: Clock | None) -> tuple[list[float], Workspace]:
    """A run; the seconds of each step of its loop once updates have begun, and the workspace."""
    cfg = settings.check(cli.plain(cli.compose_config("train", OVERRIDES)))
    folder = Path(tempfile.mkdtemp())
    workspace = Workspace(cfg, folder)
    if clock:
        clock.around(workspace.agent, "act", "acting")
        clock.around(workspace.envs, "step", "environment")
        clock.around(workspace.replay_buffer, "add", "buffer, adding")
        clock.around(workspace.replay_buffer, "sample", "buffer, sampling")
        clock.around(workspace.agent, "update", "update, with sampling and logging")
        clock.around(workspace.logger, "log_all", "logging, an update")
        clock.around(workspace.logger, "dump", "logging, an episode")
        clock.around(workspace.evaluator, "evaluate", "evaluation of 10 episodes")
    began: list[float] = []
    inner = workspace.envs.step

    def step(actions: Any) -> Any:
        began.append(time.perf_counter())
        return inner(actions)

    workspace.envs.step = step  # type: ignore[method-assign]
    workspace.run()
    between = [b - a for a, b in pairwise(began)]
    return between[SEED_STEPS + 100 :], workspace


def alone(workspace: Workspace) -> tuple[list[float], list[float], list[float]]:
    """Seconds of updates, of environment steps with random actions, and of one of each, with nothing in between."""
    clock = Clock()
    clock.around(workspace.agent, "update", "update")
    env = envs.make_env("cheetah_run", seed=1)
    clock.around(env, "step", "step")
    for _ in range(600):
        workspace.agent.update(workspace.replay_buffer, workspace.logger, 0)
    env.reset(seed=0)
    for _ in range(900):
        env.step(env.action_space.sample())
    env.reset(seed=0)
    turns_s = []
    for _ in range(600):
        action = env.action_space.sample()
        began_s = time.perf_counter()
        workspace.agent.update(workspace.replay_buffer, workspace.logger, 0)
        env.step(action)
        turns_s.append(time.perf_counter() - began_s)
    env.close()
    return clock.seconds["update"][100:600], clock.seconds["step"][100:900], turns_s


def main() -> None:
    ratios, in_turns, parts = [], [], Clock()
    for _ in range(ROUNDS):
        steps_s, workspace = train_once(None)
        updates_s, env_s, turns_s = alone(workspace)
        workspace.close()
        ratios.append(median(steps_s) / (median(updates_s) + median(env_s)))
        in_turns.append(median(steps_s) / median(turns_s))
    timed_s, workspace = train_once(parts)
    workspace.close()
    milliseconds = {name: round(1e3 * median(seconds), 4) for name, seconds in parts.seconds.items()}
    step_ms = 1e3 * median(timed_s)
    per_evaluation = milliseconds.pop("evaluation of 10 episodes")
    logging = milliseconds["logging, an update"] + milliseconds["logging, an episode"] / 1000
    evaluation = per_evaluation / DEFAULT_EVAL_FREQUENCY
    print(
        json.dumps(
            {
                "train_overhead": round(median(ratios), 3),
                "train_overhead_in_turns": round(median(in_turns), 3),
                "steps_per_second": round(1e3 / step_ms, 1),
                "step_ms": {"whole": round(step_ms, 3)} | milliseconds,
                "evaluation_ms": per_evaluation,
                "share_of_evaluation_and_logging": round((evaluation + logging) / (step_ms + evaluation), 4),
            }
        )
    )


if __name__ == "__main__":
    main()
