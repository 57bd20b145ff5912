"""Measures environment steps per second on humanoid_run with 1, 4 and 16 environments, in one process or in many.

    python studies/vector_envs.py

Measures twice: while random actions fill the replay buffer (environments and loop alone), and while an agent of 256
units makes one update per sixteen transitions. Writes benchmarks/results/vector_envs.json.
"""

import argparse
import contextlib
import io
import json
import tempfile
import time
from pathlib import Path

import instruments
from machine import circumstances

from settings import compose
from settings.schema import check
from train import Workspace

NUM_STEPS, ROUNDS = 4800, 3
OVERRIDES = [
    *("env=humanoid_run", f"num_train_steps={NUM_STEPS}", "agent.batch_size=256", "updates_per_step=0.0625"),
    *("agent.actor.hidden_dim=256", "agent.critic.hidden_dim=256", "num_threads=1", "checkpoint_frequency=0"),
    *("save_video=false", "save_figure=false", "num_eval_episodes=1", "physics=suite"),
]


def steps_per_second(num_envs: int, async_envs: bool, num_seed_steps: int) -> float:
    """Returns the speed of the loop, without set-up and the final evaluation."""
    overrides = [f"num_envs={num_envs}", f"async_envs={async_envs}", f"num_seed_steps={num_seed_steps}"]
    cfg = check(compose.plain(compose.compose_config("train", [*OVERRIDES, *overrides])))
    workspace = Workspace(cfg, Path(tempfile.mkdtemp()))
    ended_s: list[float] = []
    evaluate = workspace.evaluations.evaluator.evaluate

    def note_the_time(*args: object) -> object:
        ended_s.append(time.perf_counter())
        return evaluate(*args)

    workspace.evaluations.evaluator.evaluate = note_the_time
    started_s = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        workspace.run()
    workspace.close()
    return NUM_STEPS / (ended_s[0] - started_s)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rows = []
    cases = [(1, False), (4, False), (4, True), (16, False), (16, True)]
    rates: dict[tuple[int, bool, bool], list[float]] = {}
    for _ in range(ROUNDS):
        for num_envs, async_envs in cases:
            for training in (False, True):
                rate = steps_per_second(num_envs, async_envs, 0 if training else NUM_STEPS)
                rates.setdefault((num_envs, async_envs, training), []).append(rate)
    for num_envs, async_envs in cases:
        collecting, learning = (sorted(rates[num_envs, async_envs, t])[ROUNDS // 2] for t in (False, True))
        rows.append(
            {
                "num_envs": num_envs,
                "async_envs": async_envs,
                "collecting_steps_per_second": round(collecting),
                "training_steps_per_second": round(learning),
            }
        )
        print(rows[-1])
    record = {
        **circumstances(),
        "rounds": ROUNDS,
        "rows": rows,
    }
    (instruments.ROOT / "benchmarks" / "results" / "vector_envs.json").write_text(
        json.dumps(record, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
