"""Measures whole trainings on a GPU with captured, compiled and eager updates: `make gpu-check`.

    python benchmarks/gpu.py [VARIANT ...]

Trains on cheetah_run at full size (1024 units, batches of 1024, one update per step; other agents and presets have
their own sizes), with logs, but times no evaluations and makes no videos. The variants, by default all of VARIANTS,
take turns in two rounds; each run has its own process. Writes benchmarks/results/gpu.json (machine, versions, every
number) after each run; the last line of output is the summary as JSON.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from machine import ROOT, circumstances

sys.path.insert(0, str(ROOT))
RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
VARIANTS = {
    "eager_tf32": ["execution=eager", "precision=tf32"],
    "captured_tf32": ["execution=captured", "precision=tf32"],
    "compiled_captured_tf32": ["execution=compiled_captured", "precision=tf32"],
    "captured_bf16": ["execution=captured", "precision=bf16"],
    "captured_tf32_host": ["execution=captured", "precision=tf32", "replay_storage=host"],
    "captured_tf32_strong": ["execution=captured", "precision=tf32", "preset=strong"],
    "captured_tf32_flash_sac": ["execution=captured", "precision=tf32", "agent=flash_sac"],
    "captured_tf32_drq": [
        *("execution=captured", "precision=tf32", "agent=drq", "replay_buffer_capacity=20_000"),
        "replay_storage=device",  # actions are held for four steps: a step is a quarter of a decision
    ],
}
ROUNDS = 2
WARM_UP_EPISODES = 2  # of 1000 steps: random actions in one; updates are warmed up and captured in the other
EPISODES = 6
TIMED_UPDATES = 300
NO_EVALUATION = 10**9
TRAINING = [
    *("env=cheetah_run", "device=cuda", f"num_train_steps={1000 * EPISODES}", "replay_buffer_capacity=1_000_000"),
    *("num_seed_steps=1000", f"eval_frequency={NO_EVALUATION}", "num_eval_episodes=1", "save_video=false"),
    "save_figure=false",
]


def measure(overrides: list[str]) -> dict[str, Any]:
    """Trains once; returns the time of an update, and the speed after the warm-up, with resets and logs."""
    from settings import compose
    from settings.schema import check
    from train import Workspace

    cfg = check(compose.plain(compose.compose_config("train", overrides)))
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(cfg, Path(folder))
        ends: list[tuple[int, float]] = []  # step and time at the end of each training episode
        dump = workspace.logger.dump

        def timed_dump(step: int, save: bool = True, ty: str | None = None) -> Any:
            row = dump(step, save, ty)
            if ty == "train":
                ends.append((step, time.perf_counter()))
            return row

        workspace.logger.dump = timed_dump
        workspace.run()
        workspace.close()
        (first_step, first_s), (last_step, last_s) = ends[WARM_UP_EPISODES - 1], ends[-1]
        return {
            "steps_per_second": (last_step - first_step) / (last_s - first_s),
            "update_ms": _update_ms(workspace),
            "execution": type(workspace.agent.execution).__name__,
            "replay_storage": type(workspace.replay_buffer).__name__,
        }


def _update_ms(workspace: Any) -> float:
    """Returns the milliseconds of an update when nothing happens between updates."""
    _wait(workspace.agent.device)
    started_s = time.perf_counter()
    for _ in range(TIMED_UPDATES):
        workspace.agent.update(workspace.replay_buffer, workspace.logger, workspace.step)
    _wait(workspace.agent.device)
    return 1000 * (time.perf_counter() - started_s) / TIMED_UPDATES


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def summarise(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Returns medians over rounds, speeds of full-size variants relative to eager, and minutes for 1e6 steps."""
    summary: dict[str, float] = {}
    names = dict.fromkeys(run["variant"] for run in runs)
    for name in names:
        variant_runs = [run for run in runs if run["variant"] == name]
        summary[f"{name}_steps_per_second"] = statistics.median(run["steps_per_second"] for run in variant_runs)
        summary[f"{name}_update_ms"] = statistics.median(run["update_ms"] for run in variant_runs)
    full_size = [name for name in names if not name.endswith(("strong", "flash_sac", "drq"))]
    if eager := summary.get("eager_tf32_steps_per_second"):
        for name in full_size:
            summary[f"{name}_vs_eager"] = summary[f"{name}_steps_per_second"] / eager
    for name in names:
        summary[f"{name}_minutes_for_1e6_steps"] = 1e6 / summary[f"{name}_steps_per_second"] / 60
    return {key: round(value, 4) for key, value in summary.items()}


def main() -> int:
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(sys.argv[2:])))
        return 0
    if not torch.cuda.is_available():
        print("benchmarks/gpu.py: needs an NVIDIA GPU, and torch finds none", file=sys.stderr)
        return 2
    if unknown := [name for name in sys.argv[1:] if name not in VARIANTS]:
        print(f"benchmarks/gpu.py: no variant {unknown[0]}; there are {', '.join(VARIANTS)}", file=sys.stderr)
        return 2
    runs = []
    for number in range(ROUNDS):
        for name in sys.argv[1:] or VARIANTS:
            command = [sys.executable, __file__, "measure", *TRAINING, *VARIANTS[name]]
            process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            runs.append({"variant": name, "round": number, **json.loads(process.stdout.splitlines()[-1])})
            print(f"{name}: {runs[-1]['steps_per_second']:.0f} steps/s, {runs[-1]['update_ms']:.3f} ms per update")
            result = circumstances() | {"gpu": torch.cuda.get_device_name(), "summary": summarise(runs), "runs": runs}
            RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["summary"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
