"""What an update of each agent costs at its own sizes, beside plain SAC's at 256 units and batch 256.

    python benchmarks/agent_costs.py [--rounds 15] [--threads 1]

Every agent gets cheetah_run's sizes and a full buffer. They take turns, six updates at a time (in which every delay
comes round), so that what else the machine does falls on all alike. Written to benchmarks/results/agent_costs.json;
times are the processor's, not the clock's.
"""

import argparse
import datetime
import json
import statistics
import time
from pathlib import Path

import torch
from arithmetic import UPDATES, gflop
from machine import processor
from update_worker import ours

RESULT = Path(__file__).parent / "results" / "agent_costs.json"
SMALL = ("agent.critic.hidden_dim=256", "agent.actor.hidden_dim=256", "agent.batch_size=256")
AGENTS: dict[str, tuple[str, ...]] = {
    "sac, 256 units, batch 256": ("agent=sac", *SMALL),
    "sac": ("agent=sac",),
    "crossq": ("agent=crossq",),
    "crossq, 128 and 256 units": ("agent=crossq", "agent.actor.hidden_dim=128", "agent.critic.hidden_dim=256"),
    "simba": ("agent=simba",),
    "flash_sac": ("agent=flash_sac",),
    "xqc": ("agent=xqc",),
    "td3": ("agent=td3",),
    "tqc": ("agent=tqc",),
    "redq": ("agent=redq",),
    "droq": ("agent=droq",),
    "drq, preset=pixels_cpu": ("preset=pixels_cpu", "env=cheetah_run", "replay_buffer_capacity=2000"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    updates = {name: ours([*overrides, f"num_threads={arguments.threads}"]) for name, overrides in AGENTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in AGENTS}
    for turn in range(arguments.rounds + 1):
        for name, update in updates.items():
            started = time.process_time()
            for _ in range(UPDATES):
                update()
            if turn:  # the first warms up
                seconds[name].append((time.process_time() - started) / UPDATES)
    milliseconds = {name: 1e3 * statistics.median(found) for name, found in seconds.items()}
    reference = milliseconds[next(iter(AGENTS))]
    arithmetic = {name: gflop(overrides) for name, overrides in AGENTS.items()}
    for name, found in milliseconds.items():
        times = f"{found:8.2f} ms an update, {found / reference:6.2f} times the first"
        print(f"{name:28s} {times}, {arithmetic[name]:.2f} GFLOP")
    made = {"date": str(datetime.date.today()), "machine": processor(), "threads": torch.get_num_threads()}
    RESULT.write_text(
        json.dumps({**made, "milliseconds_per_update": milliseconds, "gflop_per_update": arithmetic}, indent=1) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
