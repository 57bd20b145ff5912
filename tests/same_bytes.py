"""Checks whether this checkout trains to the same bytes as a commit, even if its modules have moved.

    python tests/same_bytes.py <commit> [--agents sac,crossq] [--steps 1500] [--jobs 2]

Trains every agent in both, eager and recorded, with one environment and with three. Compares the rows of train.csv and
eval.csv, without the columns that measure time, and the weights in the newest checkpoint's policy.
"""

import argparse
import csv
import itertools
import os
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
CLOCKS = ("duration", "steps_per_second")
SETTINGS = tuple(itertools.product(("eager", "recorded"), (1, 3)))  # execution, num_envs
SMALL = [
    *("env=cheetah_run", "action_repeat=2", "device=cpu", "num_threads=1", "num_eval_episodes=2"),
    *("save_video=false", "save_figure=false", "log_save_tb=false"),
    *("agent.batch_size=32", "agent.critic.hidden_dim=32", "agent.actor.hidden_dim=32"),
]
PIXELS = ("image_size=40", "agent.encoder.channels=8", "agent.encoder.feature_dim=16", "updates_per_step=0.5")
MORE = {
    **dict.fromkeys(("sac_v", "sac_2018"), ("agent.value.hidden_dim=32",)),
    **dict.fromkeys(("redq", "droq"), ("updates_per_step=2",)),
    **dict.fromkeys(("drq", "drq_norm"), PIXELS),
    "sac_discrete": ("env=CartPole-v1", "action_repeat=1"),
    "crossq": tuple(f"agent.{part}.network.norm.renorm_after=200" for part in ("critic", "actor")),
}


def train(agent: str, execution: str, num_envs: int, steps: int, checkout: Path, folder: Path) -> dict[str, Any]:
    """Runs a training to its end; returns the bytes of everything that is compared, by name."""
    run = folder / f"{agent}_{execution}_{num_envs}"
    lengths = [f"num_train_steps={steps}", f"num_seed_steps={steps // 6}", f"eval_frequency={steps // 2}"]
    setting = [f"agent={agent}", f"execution={execution}", f"num_envs={num_envs}", f"checkpoint_frequency={steps}"]
    command = [sys.executable, "train.py", *setting, *SMALL, *MORE.get(agent, []), *lengths, f"hydra.run.dir={run}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if MORE.get(agent) is not PIXELS:
        environment["MUJOCO_GL"] = "disabled"
    ended = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    print(f"{run}: {ended.returncode} {ended.stderr.strip()[-300:]}", file=sys.stderr, flush=True)
    return read(run) if ended.returncode == 0 else {"failed": run}


def read(run: Path) -> dict[str, Any]:
    newest = max((run / "checkpoints").glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))
    found: dict[str, Any] = {"step": newest.name}
    for network, part in torch.load(newest / "policy.pt", weights_only=True)["networks"].items():
        for name, weight in part["weights"].items():
            found[f"{network}.{name}"] = torch.as_tensor(weight).numpy().tobytes()
    for log in ("train.csv", "eval.csv"):
        with (run / log).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        found |= {f"{log} {i} {key}": row[key] for i, row in enumerate(rows) for key in row if key not in CLOCKS}
    return found


def compare(a: Future[dict[str, Any]], b: Future[dict[str, Any]]) -> str:
    """Returns `same` or the name of the first difference."""
    first, second = a.result(), b.result()
    return next((name for name in first | second if first.get(name) != second.get(name)), "same")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--agents", type=lambda names: names.split(","))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    arguments = parser.parse_args()
    agents = arguments.agents or sorted(path.stem for path in (ROOT / "config/agent").glob("[!_]*.yaml"))
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(arguments.jobs) as pool:
        git, before = ["git", "-C", str(ROOT), "worktree"], Path(temporary, "commit")
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), arguments.commit], check=True)
        ended = {
            (name, setting, checkout): pool.submit(
                train, name, *setting, arguments.steps, checkout, Path(temporary, f"runs_in_{checkout.name}")
            )
            for name, setting, checkout in itertools.product(agents, SETTINGS, (before, ROOT))
        }
        cells = []
        for name in agents:
            row = [compare(ended[name, setting, before], ended[name, setting, ROOT]) for setting in SETTINGS]
            row += [compare(ended[name, ("eager", n), ROOT], ended[name, ("recorded", n), ROOT]) for n in (1, 3)]
            print(f"| {name} | {' | '.join(row)} |", flush=True)
            cells += row
        subprocess.run([*git, "remove", "--force", str(before)], check=True)
    print(f"{cells.count('same')} of {len(cells)} are the same")
    sys.exit(cells.count("same") < len(cells))


if __name__ == "__main__":
    main()
