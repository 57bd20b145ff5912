"""Times whole training on a GPU: updates captured, compiled and captured, and eager, in one run.

    python benchmarks/gpu.py

cheetah_run at full size (1024 units, batches of 1024, one update a step; flash_sac and drq at their own), logs on,
evaluation and videos off. Each variant trains in a process of its own, the variants in turn, twice. Writes
benchmarks/results/gpu.json (the machine, the versions, every number) and prints, last, its summary as one line of JSON.
"""

import datetime
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
VARIANTS = {
    "eager_tf32": ["execution=eager", "precision=tf32"],
    "captured_tf32": ["execution=captured", "precision=tf32"],
    "compiled_captured_tf32": ["execution=compiled_captured", "precision=tf32"],
    "captured_bf16": ["execution=captured", "precision=bf16"],
    "captured_tf32_pinned": ["execution=captured", "precision=tf32", "replay_storage=pinned"],
    "captured_tf32_flash_sac": ["execution=captured", "precision=tf32", "agent=flash_sac"],
    "captured_tf32_drq": [
        *("execution=captured", "precision=tf32", "agent=drq", "replay_buffer_capacity=20_000"),
        "replay_storage=device",  # actions are held for four steps, so a step here is a quarter of a decision
    ],
}
ROUNDS = 2
WARM_UP_EPISODES = 2  # of 1000 steps: the seed policy's, and one in which updates are warmed up and captured
EPISODES = 8
TIMED_UPDATES = 300
NO_EVALUATION = 10**9
TRAINING = [
    *("env=cheetah_run", "device=cuda", f"num_train_steps={1000 * EPISODES}", "replay_buffer_capacity=1_000_000"),
    *("num_seed_steps=1000", f"eval_frequency={NO_EVALUATION}", "num_eval_episodes=1", "save_video=false"),
    "save_figure=false",
]


def measure(overrides: list[str]) -> dict[str, Any]:
    """Trains once. Steps/s are from the end of one episode to the end of another: resets, logs and dumps included."""
    from settings import compose
    from settings.schema import check
    from train import Workspace

    cfg = check(compose.plain(compose.compose_config("train", overrides)))
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(cfg, Path(folder))
        ends: list[tuple[int, float]] = []  # of the training episodes: step, time
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
    """One update after another, with nothing between them: milliseconds each."""
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
    """Medians over the rounds, and each variant's speed over the eager one's."""
    found: dict[str, float] = {}
    for name in VARIANTS:
        of_name = [run for run in runs if run["variant"] == name]
        found[f"{name}_steps_per_second"] = statistics.median(run["steps_per_second"] for run in of_name)
        found[f"{name}_update_ms"] = statistics.median(run["update_ms"] for run in of_name)
    eager = found["eager_tf32_steps_per_second"]
    for name in VARIANTS:
        found[f"{name}_vs_eager"] = found[f"{name}_steps_per_second"] / eager
    plain = [name for name in VARIANTS if "tf32" in name and not name.endswith(("flash_sac", "drq"))]
    fastest = max(found[f"{name}_steps_per_second"] for name in plain)
    found["minutes_for_1e6_steps_tf32"] = 1e6 / fastest / 60
    return {key: round(value, 4) for key, value in found.items()}


def machine() -> dict[str, Any]:
    return {
        "gpu": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "date": datetime.date.today().isoformat(),
    }


def main() -> int:
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(sys.argv[2:])))
        return 0
    if not torch.cuda.is_available():
        print("benchmarks/gpu.py: it needs an NVIDIA GPU, and torch finds none here", file=sys.stderr)
        return 2
    runs = []
    for number in range(ROUNDS):
        for name, overrides in VARIANTS.items():
            command = [sys.executable, __file__, "measure", *TRAINING, *overrides]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            runs.append({"variant": name, "round": number, **json.loads(done.stdout.splitlines()[-1])})
            print(f"{name}: {runs[-1]['steps_per_second']:.0f} steps/s, {runs[-1]['update_ms']:.3f} ms an update")
    summary = summarise(runs)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"machine": machine(), "summary": summary, "runs": runs}, indent=1) + "\n", encoding="utf-8"
    )
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
