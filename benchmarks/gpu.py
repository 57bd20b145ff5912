"""Measures trainings on a GPU, with one environment and with 1024 worlds of mujoco-warp: `make gpu-check`.

    python benchmarks/gpu.py [VARIANT ...]

Each variant trains in a process of its own, with logs, but without evaluations and videos (`worlds_…` evaluate).
Writes benchmarks/results/gpu.json after each; the last line of output is one JSON object.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from machine import ROOT, circumstances, make_workspace

from study import runs

RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
TF32 = ["precision=tf32", "execution=captured"]
VARIANTS = {  # cheetah_run at full size: 1024 units, batches of 1024; other agents and presets have their own sizes
    "eager": ["precision=tf32", "execution=eager"],
    "captured": TF32,
    "compiled_captured": ["precision=tf32", "execution=compiled_captured"],
    "captured_host": [*TF32, "replay_storage=host"],
    "strong": [*TF32, "preset=strong"],
    "flash_sac": [*TF32, "agent=flash_sac"],
    "drq": [*TF32, "agent=drq", "replay_buffer_capacity=20_000"],
}
WORLDS = {"worlds_cheetah_run": "cheetah_run", "worlds_humanoid_run": "humanoid_run"}
WARM_UP_EPISODES, EPISODES = 2, 6  # of 1000 steps: random actions in one, updates are captured in the other
TIMED_UPDATES = 300
TRAINING = [
    *("env=cheetah_run", "device=cuda", f"num_train_steps={1000 * EPISODES}", "num_seed_steps=1000"),
    *("eval_frequency=1_000_000_000", "num_eval_episodes=1", "save_video=false", "save_figure=false"),
]
WORLDS_SECONDS = 60  # of training, after mujoco-warp has compiled its kernels
LEARNING = 200_000  # steps; the preset acts at random for 100 000


def measure(overrides: list[str]) -> dict[str, Any]:
    """Trains once; returns the speed after the warm-up, with resets and logs, and the time of an update alone."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = make_workspace(Path(folder), overrides)
        workspace.run()
        log = runs.read(Path(folder) / "train.csv")
    synchronise = torch.cuda.synchronize if workspace.agent.device.type == "cuda" else lambda: None
    synchronise()
    began_s = time.perf_counter()
    for _ in range(TIMED_UPDATES):
        workspace.agent.update(workspace.replay_buffer, workspace.logger, 0)
    synchronise()
    num_steps, seconds = (sum(log[name][1][WARM_UP_EPISODES:]) for name in ("episode_length", "duration"))
    return {
        "steps_per_second": num_steps / seconds,
        "update_ms": 1000 * (time.perf_counter() - began_s) / TIMED_UPDATES,
    }


def measure_worlds(task: str, overrides: list[str]) -> dict[str, Any]:
    """Trains 1024 worlds, and interrupts; returns the speed once updates have begun, and every evaluation."""
    every = ["log_frequency=1_024_000", "eval_frequency=1_024_000", "checkpoint_frequency=0", "save_figure=false"]
    reached: list[tuple[float, int]] = []  # seconds since the start, step at the last end of an episode
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "train.py", "preset=many_worlds", f"env={task}", *every, *overrides]
        began_s = time.perf_counter()
        process = subprocess.Popen([*command, f"hydra.run.dir={folder}/run"], cwd=ROOT, stdout=subprocess.DEVNULL)
        while process.poll() is None and (not reached or reached[-1][0] - reached[0][0] < WORLDS_SECONDS):
            time.sleep(0.5)
            if "step" in (log := runs.read(Path(folder, "run", "train.csv"))):
                reached.append((time.perf_counter() - began_s, int(log["step"][1][-1])))
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()
        evaluations = runs.read(Path(folder, "run", "eval.csv"))["episode_reward"]
    learnt = [(at_s, step) for at_s, step in reached if step > LEARNING]
    return {
        "steps_per_second": (learnt[-1][1] - learnt[0][1]) / (learnt[-1][0] - learnt[0][0]),
        "evaluations": [
            {"step": step, "seconds": next((at_s for at_s, at in reached if at >= step), None), "return": value}
            for step, value in zip(*evaluations, strict=True)
        ],
    }


def main() -> int:
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(sys.argv[2:])))
        return 0
    if not torch.cuda.is_available():
        sys.exit("benchmarks/gpu.py: needs an NVIDIA GPU, and torch finds none")
    found: dict[str, Any] = {}
    for name in sys.argv[1:] or [*VARIANTS, *WORLDS]:
        if name in WORLDS:
            found[name] = measure_worlds(WORLDS[name], ["physics=warp"])
        else:
            command = [sys.executable, __file__, "measure", *TRAINING, *VARIANTS[name]]
            output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
            found[name] = json.loads(output.splitlines()[-1])
        print(name, found[name], flush=True)
        result = circumstances() | {"gpu": torch.cuda.get_device_name(), "runs": found}
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: round(run["steps_per_second"]) for name, run in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
