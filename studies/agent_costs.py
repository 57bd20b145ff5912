"""Measures the processor time of each agent's update, compared with SAC (256 units, batches of 256).

    python studies/agent_costs.py [--rounds 3] [--threads 1]

Agents have the sizes in their YAML files unless their names in AGENTS say otherwise, cheetah_run's spaces (images for
drq) and a full replay buffer. They take turns, so that other load on the machine affects all alike. A turn is sixty
updates, a multiple of every update frequency. Writes benchmarks/results/agent_costs.json.
"""

import argparse
import json
import statistics
import time

import instruments
from arithmetic import UPDATES, gflop
from machine import circumstances
from update_worker import ours

RESULT = instruments.ROOT / "benchmarks" / "results" / "agent_costs.json"
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
    "sac_discrete": ("agent=sac_discrete",),
    "tqc": ("agent=tqc",),
    "redq": ("agent=redq",),
    "droq": ("agent=droq",),
    "drq, preset=pixels_cpu": ("preset=pixels_cpu", "env=cheetah_run", "replay_buffer_capacity=2000"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    updates = {name: ours([*overrides, f"num_threads={arguments.threads}"]) for name, overrides in AGENTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in AGENTS}
    for turn in range(arguments.rounds + 1):
        for name, update in updates.items():
            started = time.process_time()
            for _ in range(UPDATES):
                update()
            if turn:  # the first turn is a warm-up
                seconds[name].append((time.process_time() - started) / UPDATES)
    milliseconds = {name: 1e3 * statistics.median(samples) for name, samples in seconds.items()}
    reference = milliseconds[next(iter(AGENTS))]
    arithmetic = {name: gflop(overrides) for name, overrides in AGENTS.items()}
    for name, update_ms in milliseconds.items():
        times = f"{update_ms:8.2f} ms per update, {update_ms / reference:6.2f} times the first"
        print(f"{name:28s} {times}, {arithmetic[name]:.2f} GFLOP")
    result = {**circumstances(), "milliseconds_per_update": milliseconds, "gflop_per_update": arithmetic}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
