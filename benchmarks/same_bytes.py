"""Checks whether this checkout trains to the same bytes as a commit, even if its modules have moved.

    python benchmarks/same_bytes.py <commit> [--agents sac,crossq] [--steps 3000] [--jobs 2] [--keep FOLDER]

Runs `train.py` for every agent in a worktree of the commit and in this checkout, eager and recorded, with one
environment and with three, with the same overrides and the same interpreter. Compares train.csv and eval.csv without
the columns that measure time, and the policy in the newest checkpoint: its action range and its networks' weights by
name. Imports nothing from the project, because its modules may have moved. Prints a table with one row per agent;
progress goes to standard error.
"""

import argparse
import csv
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

ROOT = Path(__file__).resolve().parents[1]
CLOCKS = ("duration", "steps_per_second")
THERE, HERE = "there", "here"
SETTINGS = tuple(itertools.product(("eager", "recorded"), (1, 3)))  # execution, num_envs
TIMEOUT_S = 900
SMALL = [
    *("env=cheetah_run", "action_repeat=2", "device=cpu", "num_threads=1", "num_eval_episodes=2"),
    *("save_video=false", "save_figure=false", "log_save_tb=false"),
    *("agent.batch_size=32", "agent.critic.hidden_dim=32", "agent.actor.hidden_dim=32"),
]
PIXELS = ["image_size=40", "agent.encoder.channels=8", "agent.encoder.feature_dim=16", "updates_per_step=0.5"]
MORE = {
    "sac_v": ["agent.value.hidden_dim=32"],
    "sac_2018": ["agent.value.hidden_dim=32"],
    "redq": ["updates_per_step=2"],
    "droq": ["updates_per_step=2"],
    "sac_discrete": ["env=CartPole-v1", "action_repeat=1"],
    "drq": PIXELS,
    "drq_norm": PIXELS,
    "crossq": ["agent.critic.network.norm.renorm_after=200", "agent.actor.network.norm.renorm_after=200"],
}


class Case(NamedTuple):
    """One training run on one side."""

    agent: str
    execution: str
    num_envs: int
    side: str

    def __str__(self) -> str:
        return f"{self.agent} {self.execution} x {self.num_envs} {self.side}"


class Ended(NamedTuple):
    """A training run that has ended."""

    folder: Path
    failure: str | None  # the side and the last line of output, if it failed


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """Checks a commit out into a folder, and removes the folder at the end of the context."""
    git = ["git", "-C", str(ROOT), "worktree"]
    if subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit]).returncode:
        sys.exit(2)  # git has printed the reason
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def agents(checkout: Path) -> set[str]:
    return {path.stem for path in (checkout / "config" / "agent").glob("[!_]*.yaml")}


def overrides(case: Case, steps: int) -> list[str]:
    lengths = [f"num_train_steps={steps}", f"num_seed_steps={steps // 6}", f"eval_frequency={steps // 2}"]
    setting = [f"agent={case.agent}", f"execution={case.execution}", f"num_envs={case.num_envs}"]
    return [*setting, *SMALL, *MORE.get(case.agent, []), *lengths, f"checkpoint_frequency={steps}"]


def train(case: Case, checkout: Path, folder: Path, steps: int) -> Ended:
    """Runs a training to its end; its output goes to a file beside the run's folder."""
    run = folder / str(case).replace(" ", "_")
    log = run.with_suffix(".log")
    command = [sys.executable, "train.py", *overrides(case, steps), f"hydra.run.dir={run}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if MORE.get(case.agent) is not PIXELS:
        environment["MUJOCO_GL"] = "disabled"
    began_s = time.perf_counter()
    try:
        with log.open("w") as file:
            code = subprocess.run(
                command, cwd=checkout, env=environment, stdout=file, stderr=subprocess.STDOUT, timeout=TIMEOUT_S
            ).returncode
        failure = None if code == 0 else f"failed {case.side}: {last_line(log) or f'exit code {code}'}"
    except subprocess.TimeoutExpired:
        failure = f"failed {case.side}: not done after {TIMEOUT_S} s"
    print(f"{case}: {failure or 'done'}, {time.perf_counter() - began_s:.1f} s", file=sys.stderr, flush=True)
    return Ended(run, failure)


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def difference(a: Ended, b: Ended) -> str:
    """Returns the failure of a run, or the first difference, or `same`."""
    failure = b.failure or a.failure
    if failure:
        return failure
    try:
        return next(differences(a.folder, b.folder), "same")
    except Exception as fault:  # a missing or unreadable file fails only this cell
        return f"failed: {type(fault).__name__}: {fault}"


def differences(a: Path, b: Path) -> Iterator[str]:
    for name in ("train.csv", "eval.csv"):
        yield from of_tables(name, timeless(a / name), timeless(b / name))
    last_a, last_b = newest_checkpoint(a), newest_checkpoint(b)
    if last_a.name != last_b.name:
        yield f"checkpoint {last_a.name} != {last_b.name}"
    yield from of_policies(*(torch.load(last / "policy.pt", weights_only=True) for last in (last_a, last_b)))


def timeless(path: Path) -> list[list[str]]:
    """Returns the rows of a CSV file, header first, without the columns that measure time."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    if not rows:
        raise ValueError(f"{path.name} has no rows")
    columns = [index for index, name in enumerate(header) if name not in CLOCKS]
    return [[row[index] for index in columns] for row in (header, *rows)]


def of_tables(name: str, a: list[list[str]], b: list[list[str]]) -> Iterator[str]:
    (header, *rows_a), (header_b, *rows_b) = a, b
    if header != header_b:
        yield f"{name} columns " + first_unequal(header, header_b)
        return
    for number, (row_a, row_b) in enumerate(zip(rows_a, rows_b, strict=False), 1):
        for column, x, y in zip(header, row_a, row_b, strict=True):
            if x != y:
                yield f"{name} row {number} {column} {x} != {y}"
    if len(rows_a) != len(rows_b):
        yield f"{name} {len(rows_a)} rows != {len(rows_b)}"


def first_unequal(a: Sequence[str], b: Sequence[str]) -> str:
    return next(f"{x} != {y}" for x, y in itertools.zip_longest(a, b, fillvalue="none") if x != y)


def newest_checkpoint(folder: Path) -> Path:
    checkpoints = [path for path in (folder / "checkpoints").iterdir() if re.fullmatch(r"step_\d+", path.name)]
    return max(checkpoints, key=lambda path: int(path.name.removeprefix("step_")))


def of_policies(a: dict[str, Any], b: dict[str, Any]) -> Iterator[str]:
    """Yields differences in action range and weights; the class names in the files may differ."""
    if a["action_range"] != b["action_range"]:
        yield f"policy action_range {a['action_range']} != {b['action_range']}"
    networks_a, networks_b = a["networks"], b["networks"]
    if networks_a.keys() != networks_b.keys():
        yield "policy networks " + first_unequal(sorted(networks_a), sorted(networks_b))
        return
    for network in networks_a:
        weights_a, weights_b = networks_a[network]["weights"], networks_b[network]["weights"]
        if list(weights_a) != list(weights_b):
            yield f"policy {network} weights " + first_unequal(list(weights_a), list(weights_b))
            return
        yield from (f"policy {network} {name}" for name in weights_a if not same(weights_a[name], weights_b[name]))


def same(a: Any, b: Any) -> bool:
    """Returns whether two values, which may be nested, are equal to the last bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)  # nan


def row(agent: str, ended: dict[Case, Future[Ended]]) -> list[str]:
    """Returns one cell per setting that compares the sides, and one that compares eager and recorded on this side."""
    runs = {case: future.result() for case, future in ended.items() if case.agent == agent}
    cells = [difference(*(runs[Case(agent, *setting, side)] for side in (THERE, HERE))) for setting in SETTINGS]
    between = {
        n: difference(*(runs[Case(agent, execution, n, HERE)] for execution in ("eager", "recorded"))) for n in (1, 3)
    }
    return [*cells, next((f"x {n}: {text}" for n, text in between.items() if text != "same"), "same")]


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def compare(names: Sequence[str], there: Path, folder: Path, steps: int, jobs: int) -> list[str]:
    """Runs all trainings, prints each row of the table when its runs are done, and returns the cells."""
    checkouts = {THERE: there, HERE: ROOT}
    cases = [Case(name, *setting, side) for name in names for setting in SETTINGS for side in checkouts]
    headings = [f"{execution} x {num_envs}" for execution, num_envs in SETTINGS]
    print(line(["agent", *headings, "recorded = eager"]), line(["---"] * 6), sep="\n", flush=True)
    pool = ThreadPoolExecutor(jobs)
    all_cells = []
    try:
        ended = {case: pool.submit(train, case, checkouts[case.side], folder, steps) for case in cases}
        for name in names:
            cells = row(name, ended)
            print(line([name, *cells]), flush=True)
            all_cells += cells
    finally:
        pool.shutdown(cancel_futures=True)
    return all_cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--agents", type=lambda names: names.split(","), help="default: all that both sides have")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--keep", type=Path, help="a new or empty folder for the runs")
    arguments = parser.parse_args()
    if arguments.keep and arguments.keep.exists() and any(arguments.keep.iterdir()):
        parser.error(f"{arguments.keep} is not empty")
    with tempfile.TemporaryDirectory(prefix="same_bytes_") as temporary:
        folder = (arguments.keep or Path(temporary) / "runs").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        with worktree(arguments.commit, Path(temporary) / "commit") as there:
            both = sorted(agents(there) & agents(ROOT))
            unknown = set(arguments.agents or both) - set(both)
            if unknown or not both:
                parser.error(f"not on both sides: {', '.join(sorted(unknown)) or 'any agent'}")
            cells = compare(arguments.agents or both, there, folder, arguments.steps, arguments.jobs)
    same = cells.count("same")
    print(f"\n{same} of {len(cells)} are the same")
    sys.exit(same < len(cells))


if __name__ == "__main__":
    main()
