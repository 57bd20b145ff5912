"""Kills runs at random instants, resumes them until they finish, and compares every byte with undisturbed runs.

    python benchmarks/crash_test.py --minutes 1 [--seed 7] [--only pendulum ring]

Each start of a run is a process, which gets SIGKILL (or SIGTERM, one time in five) and is started again by the same
command, `train.py resume=auto …`, or by `resume=<folder>`. Most processes are forked from this one, which has imported
everything, so that more kills fit into a minute; every tenth is a new interpreter. Half of the kills wait until a
checkpoint is being written. benchmarks/same_run.py compares the results. Prints one line per scenario and writes a
summary.
"""

import argparse
import datetime
import json
import os
import platform
import random
import runpy
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", MUJOCO_GL="disabled")  # forking is safe with one thread only
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import torch._dynamo  # noqa: E402  takes two seconds; the forked runs would need them too
from same_bytes import same  # noqa: E402
from same_run import result  # noqa: E402
from torch.utils import tensorboard  # noqa: E402, F401  as above

import envs.make  # noqa: E402, F401
from run.saving import checkpoint  # noqa: E402
from run.saving import folder as run_folder  # noqa: E402
from run.stopping import EXIT_SAVED  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "crash_test.json"
SMALL = [
    *("device=cpu", "num_threads=1", "save_video=false", "save_figure=false", "num_eval_episodes=2"),
    *("agent.batch_size=16", "agent.critic.hidden_dim=16", "agent.actor.hidden_dim=16"),
    *("num_seed_steps=100", "num_train_steps=600", "eval_frequency=250", "checkpoint_frequency=13"),
]
PENDULUM = "env=Pendulum-v1"  # episodes of 200 steps
SCENARIOS: dict[str, list[str]] = {
    "sac": [PENDULUM, "log_frequency=200", "log_every_steps=50"],
    "sac_v": [PENDULUM, "agent=sac_v", "agent.value.hidden_dim=16"],
    "sac_2018": [PENDULUM, "agent=sac_2018", "agent.value.hidden_dim=16", "save_replay_buffer=true"],
    "crossq": [PENDULUM, "agent=crossq", "agent.critic.network.norm.renorm_after=200"],
    "flash_sac": [PENDULUM, "agent=flash_sac"],
    "td3": [PENDULUM, "agent=td3"],
    "droq": [PENDULUM, "agent=droq", "updates_per_step=1", "agent.actor_update_frequency=3"],
    "four_envs": [PENDULUM, "num_envs=4", "checkpoint_frequency=30"],
    "four_processes": [PENDULUM, "num_envs=4", "async_envs=true", "checkpoint_frequency=30"],
    "ring": [PENDULUM, "replay_buffer_capacity=170", "sample_with_replacement=false", "update_every=7"],
    "followers": [
        *(PENDULUM, "num_envs=3", "n_step=3", "agent/observation_normaliser=running", "checkpoint_frequency=30"),
        *("agent/reward_normaliser=returns", "agent/exploration=held", "agent.critic_weight_decay=0.01"),
    ],
    "cartpole_balance": ["env=cartpole_balance", "num_train_steps=1100", "num_eval_episodes=1"],
    "pixels": [
        *(PENDULUM, "agent=drq", "image_size=16", "image_pad=2", "replay_buffer_capacity=150", "n_step=2"),
        *("agent.encoder.strides=[2,1]", "agent.encoder.channels=4", "log_frequency=200", "action_repeat=4"),
    ],
    "background": [PENDULUM, "num_train_steps=900", "eval_in_background=true"],
    "reacher_easy": ["env=reacher_easy", "num_train_steps=1100", "action_repeat=2", "num_eval_episodes=1"],
}


@dataclass
class Outcome:
    """The counts of one scenario."""

    runs: int = 0  # finished, and compared with the undisturbed run
    sigkills: int = 0
    sigterms: int = 0
    during_a_write: int = 0  # SIGKILLs that left half a checkpoint
    fresh_interpreters: int = 0
    faults: list[str] = field(default_factory=list)


class Run:
    """A training run in a folder, started until it is finished."""

    def __init__(self, folder: Path, overrides: list[str]):
        self.folder = folder
        self._auto = ["resume=auto", *SMALL, *overrides, f"hydra.run.dir={folder}"]
        self._log = folder.with_suffix(".txt")

    def start(self, fresh: bool = False, by_folder: bool = False) -> int:
        """Starts a process and returns its id.

        Args:
            fresh: as a new interpreter; otherwise forked.
            by_folder: by `resume=<folder>` if there is a checkpoint; otherwise by `resume=auto`.
        """
        by_folder = by_folder and bool(checkpoint.newest_first(self.folder))
        arguments = [f"resume={self.folder}"] if by_folder else self._auto
        if fresh:
            with self._log.open("ab") as log:
                command = [sys.executable, "train.py", *arguments]
                return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True).pid
        child = os.fork()
        if child:
            return child
        try:
            os.setsid()
            log_to = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log_to, 1), os.dup2(log_to, 2)
            sys.argv = ["train.py", *arguments]
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        except SystemExit as end:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(1)

    def is_finished(self) -> bool:
        return (self.folder / run_folder.FINISHED).exists()

    def last_output(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:])


def wait(process: int, seconds: float) -> int | None:
    """Returns the exit code (negative: the signal), or None if the process still runs after `seconds`."""
    until_s = time.perf_counter() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.perf_counter() >= until_s:
            return None
        time.sleep(0.001)


def undisturbed(run: Run) -> tuple[float, float]:
    """Runs to the end; returns the seconds of the forked run and those a new interpreter needs for its imports."""
    started_s = time.perf_counter()
    code = wait(run.start(), 600)
    if code != 0:
        raise SystemExit(f"the undisturbed run ended with {code}: {run.last_output()}")
    whole_s = time.perf_counter() - started_s
    started_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import train, envs.make"], cwd=ROOT, check=True)
    return whole_s, time.perf_counter() - started_s


def is_writing(run: Run) -> bool:
    """Returns whether there is half a checkpoint, being written or left by a killed process."""
    folder = run.folder / checkpoint.FOLDER
    return any(folder.glob(".step_*")) or any(folder.glob("*/.part.rows"))


def wait_for_a_write(run: Run) -> None:
    """Returns when the process begins to write a checkpoint, or after two seconds."""
    until_s = time.perf_counter() + 2
    while is_writing(run) and time.perf_counter() < until_s:  # an older one
        time.sleep(0.0005)
    while not is_writing(run) and time.perf_counter() < until_s and not run.is_finished():
        time.sleep(0.0005)


def disturb(run: Run, whole_s: float, import_s: float, chance: random.Random, outcome: Outcome, until_s: float) -> bool:
    """Kills and resumes the run until it is finished, without kills after `until_s`; returns whether it succeeded."""
    span_s = 0.2 * whole_s  # a kill falls within it; it grows while no new checkpoint is reached
    while True:
        fresh = chance.random() < 0.1
        outcome.fresh_interpreters += fresh
        process = run.start(fresh, by_folder=chance.random() < 0.8)
        before = checkpoint.newest_first(run.folder)[:1]
        delay_s = chance.uniform(0, span_s) + (import_s if fresh else 0)
        if time.perf_counter() >= until_s:
            delay_s = 600
        code = wait(process, delay_s)
        if code is None and chance.random() < 0.5:
            wait_for_a_write(run)
            code = wait(process, chance.uniform(0, 0.008))
        if code is None:
            number = signal.SIGTERM if chance.random() < 0.2 else signal.SIGKILL
            os.kill(process, number)
            code = wait(process, 60)
            span_s *= 1.3 if checkpoint.newest_first(run.folder)[:1] == before else 0.9
            if number == signal.SIGKILL:
                outcome.sigkills += 1
                outcome.during_a_write += is_writing(run)
            else:
                outcome.sigterms += 1
            if code in (-number, EXIT_SAVED):
                continue
        if code != 0:
            outcome.faults.append(f"exit code {code}: {run.last_output()}")
        return code == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="seed of the instants; random if not given, and printed")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    parser.add_argument("--result", type=Path, default=RESULT, help="file of the summary")
    arguments = parser.parse_args()
    seed = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    until_s = time.perf_counter() + 60 * arguments.minutes
    folder = Path(tempfile.mkdtemp(prefix="crash_test_"))
    outcomes = {name: Outcome() for name in chance.sample(arguments.only, len(arguments.only))}
    expected: dict[str, dict[str, Any]] = {}
    durations: dict[str, tuple[float, float]] = {}
    try:
        while time.perf_counter() < until_s:
            for name, outcome in outcomes.items():
                if time.perf_counter() >= until_s:
                    break
                if name not in expected:
                    straight = Run(folder / f"{name}_straight", SCENARIOS[name])
                    durations[name] = undisturbed(straight)
                    expected[name] = result(straight.folder)
                run = Run(folder / f"{name}_{outcome.runs}", SCENARIOS[name])
                if disturb(run, *durations[name], chance, outcome, until_s):
                    outcome.runs += 1
                    got = result(run.folder)
                    outcome.faults += [f"{part} differs" for part in got if not same(got[part], expected[name][part])]
                if outcome.faults:
                    print(f"{name}: {outcome.faults[-1]} ({run.folder})", flush=True)
                    arguments.keep = True
                else:
                    shutil.rmtree(run.folder, ignore_errors=True)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report(seed, arguments.minutes, outcomes, arguments.result)
    sys.exit(any(outcome.faults for outcome in outcomes.values()))


def report(seed: int, minutes: float, outcomes: dict[str, Outcome], path: Path) -> None:
    for name, outcome in outcomes.items():
        unharmed = "every byte the same" if outcome.runs else "not run, no time left"
        verdict = "DIFFERS: " + "; ".join(outcome.faults) if outcome.faults else unharmed
        print(
            f"{name:17} {outcome.runs:3} runs, {outcome.sigkills:3} SIGKILL ({outcome.during_a_write} during a write), "
            f"{outcome.sigterms:3} SIGTERM, {outcome.fresh_interpreters} in a fresh interpreter: {verdict}"
        )
    kills = sum(outcome.sigkills for outcome in outcomes.values())
    terms = sum(outcome.sigterms for outcome in outcomes.values())
    print(f"{kills} SIGKILL and {terms} SIGTERM with seed {seed}", flush=True)
    summary = {
        "date": datetime.date.today().isoformat(),
        "seed": seed,
        "minutes": minutes,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sigkills": kills,
        "sigterms": terms,
        "scenarios": {name: asdict(outcome) for name, outcome in outcomes.items()},
    }
    path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
