"""Measures where a run spends its time: cheetah_run, 256 units, batches of 256, with logs and one evaluation.

benchmarks/speed.py starts this script. In a first run, blocks of training steps take turns with blocks of updates
alone, of environment steps alone, and of both in alternation. A turn takes a second or two, so that other load on the
machine affects all alike. A second run times the calls of the loop. Prints one JSON object, which includes:

    step_ms         median milliseconds of a step of the loop and of its parts
    train_overhead  time of a training step divided by that of an update and an environment step, each repeated alone
                    with warm caches
    train_overhead_in_turns   the same, but the two alternate, as in training, and evict each other's data
    share_of_evaluation_and_logging   share of a run's time at the default frequencies, without video

Each overhead is a ratio of medians within a block; the median over blocks is printed.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from envs.make import make_env
from settings import compose
from settings.schema import check
from train import Workspace

NUM_STEPS, SEED_STEPS = 4000, 500
BLOCK, SETTLE = 120, 20  # steps in a block, and how many of the first do not count (caches hold other data)
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
    """Wraps methods of objects and records the time of each call."""

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


@contextmanager
def workspace_of_a_run() -> Iterator[Workspace]:
    cfg = check(compose.plain(compose.compose_config("train", OVERRIDES)))
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(cfg, Path(folder))
        yield workspace
        workspace.close()


def repeat(call: Callable[[], Any]) -> list[float]:
    """Returns the seconds of each call in a block."""
    seconds = []
    for _ in range(BLOCK):
        began_s = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began_s)
    return seconds


def overheads(workspace: Workspace) -> tuple[float, float]:
    """Returns train_overhead and train_overhead_in_turns."""
    env = make_env("cheetah_run", seed=1)
    inner = workspace.envs.step
    began_s: list[float] = []
    alone: list[float] = []
    in_turns: list[float] = []

    def update() -> None:
        workspace.agent.update(workspace.replay_buffer, workspace.logger, 0)

    def env_step() -> None:
        env.step(env.action_space.sample())

    def both() -> None:
        update()
        env_step()

    def step(actions: Any) -> Any:
        began_s.append(time.perf_counter())
        if workspace.step <= SEED_STEPS + SETTLE:  # no updates yet, or they are being recorded
            began_s.clear()
        elif len(began_s) > BLOCK:
            whole = [b - a for a, b in pairwise(began_s)]
            env.reset(seed=0)
            parts = [median(repeat(part)[SETTLE:]) for part in (update, env_step, both)]
            alone.append(median(whole[SETTLE:]) / (parts[0] + parts[1]))
            in_turns.append(median(whole[SETTLE:]) / parts[2])
            began_s.clear()
        return inner(actions)

    workspace.envs.step = step
    workspace.run()
    env.close()
    return median(alone), median(in_turns)


def step_parts(workspace: Workspace) -> dict[str, float]:
    """Returns step_ms."""
    clock = Clock()
    clock.around(workspace.agent, "act", "acting")
    clock.around(workspace.envs, "step", "environment")
    clock.around(workspace.replay_buffer, "add", "buffer, adding")
    clock.around(workspace.replay_buffer, "sample", "buffer, sampling")
    clock.around(workspace.agent, "update", "update, with sampling and logging")
    clock.around(workspace.logger, "log_all", "logging, an update")
    clock.around(workspace.logger, "dump", "logging, an episode")
    clock.around(workspace.evaluations.evaluator, "evaluate", "evaluation of 10 episodes")
    began_s: list[float] = []
    inner = workspace.envs.step

    def step(actions: Any) -> Any:
        began_s.append(time.perf_counter())
        return inner(actions)

    workspace.envs.step = step
    workspace.run()
    whole = [b - a for a, b in pairwise(began_s)][SEED_STEPS + 100 :]
    return {name: round(1e3 * median(s), 4) for name, s in ({"whole": whole} | clock.seconds).items()}


def main() -> None:
    with workspace_of_a_run() as workspace:
        overhead, in_turns = overheads(workspace)
    with workspace_of_a_run() as workspace:
        milliseconds = step_parts(workspace)
    per_evaluation = milliseconds.pop("evaluation of 10 episodes")
    logging = milliseconds["logging, an update"] + milliseconds["logging, an episode"] / 1000
    evaluation = per_evaluation / DEFAULT_EVAL_FREQUENCY
    print(
        json.dumps(
            {
                "train_overhead": round(overhead, 3),
                "train_overhead_in_turns": round(in_turns, 3),
                "steps_per_second": round(1e3 / milliseconds["whole"], 1),
                "step_ms": milliseconds,
                "evaluation_ms": per_evaluation,
                "share_of_evaluation_and_logging": round(
                    (evaluation + logging) / (milliseconds["whole"] + evaluation), 4
                ),
            }
        )
    )


if __name__ == "__main__":
    main()
