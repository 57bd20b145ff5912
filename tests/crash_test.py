"""Kills trainings at random instants, repeats their commands until they finish, and compares every byte.

    python tests/crash_test.py --minutes 10 [--seed 7] [--only pixels tuning]

Each scenario runs once undisturbed. Then, until the time is up, a run of each in turn gets SIGKILL (one time in five,
SIGTERM) again and again, and is started again by the same command, `train.py resume=auto …`, until it is finished. It
must end in the bytes of the undisturbed one (see tests/helpers/same_run.py). Most processes are forked from this one,
which has imported everything, so that more kills fit into a minute; one in ten is a new interpreter. Half of the kills
wait until a checkpoint is being written.

What no kill shows is a machine that is switched off between the writing of a checkpoint and its rename. Then the
kernel's buffers are lost: of files and names, only what was synced is there, and a rename may be on the disk before or
after what was written around it. `Checkpoints.save` syncs each file and the folder's list of names before it renames
the folder, so a checkpoint with its final name is complete; it syncs the parent before it deletes older ones, so until
the rename has reached the disk they are still there. A segment of rows is synced before the manifest that lists it.
"""

import argparse
import glob
import os
import random
import runpy
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", MUJOCO_GL="disabled")  # forking is safe with one thread only
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/helpers")]

import optuna  # noqa: E402, F401
import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  takes two seconds, which forked runs then save
from same_run import result, same  # noqa: E402
from torch.utils import tensorboard  # noqa: E402, F401  as above

import envs.make  # noqa: E402, F401

SMALL = [
    *("device=cpu", "num_threads=1", "save_video=false", "save_figure=false", "num_eval_episodes=2"),
    *("agent.batch_size=16", "agent.critic.hidden_dim=16", "agent.actor.hidden_dim=16"),
    *("num_seed_steps=100", "num_train_steps=600", "eval_frequency=250", "checkpoint_frequency=13"),
]
PENDULUM = "env=Pendulum-v1"  # episodes of 200 steps
OLD = "sac"  # the scenario whose undisturbed run others preload
SCENARIOS: dict[str, list[str]] = {  # name: overrides
    OLD: [PENDULUM, "log_frequency=200"],
    "four_envs": [PENDULUM, "num_envs=4", "n_step=3", "agent/reward_normaliser=returns", "checkpoint_frequency=30"],
    "four_processes": [PENDULUM, "num_envs=4", "async_envs=true", "checkpoint_frequency=30"],
    "prioritised": [PENDULUM, "replay_buffer=prioritized", "replay_buffer_capacity=170", "num_envs=2"],
    "discrete": ["env=CartPole-v1", "agent=sac_discrete", "n_step=3", "num_envs=2", "checkpoint_frequency=30"],
    "pixels": [
        *(PENDULUM, "agent=drq", "image_size=16", "image_pad=2", "replay_buffer_capacity=150", "n_step=2"),
        *("agent.encoder.strides=[2,1]", "agent.encoder.channels=4", "log_frequency=200", "action_repeat=4"),
    ],
    "worlds": ["env=cartpole_swingup", "num_envs=3", "num_train_steps=3300", "checkpoint_frequency=130"],
    "preloaded": [PENDULUM, "preload=OLD", "preload_share=0.5"],
    "background": [PENDULUM, "num_train_steps=900", "eval_in_background=true"],
    "tuning": [
        *("-m", "preset=tune", PENDULUM, "num_train_steps=300", "agent.critic_lr=1e-3,1e-2", "reward_scale=1"),
        *("updates_per_step=1", "agent.critic_tau=0.01", "hydra.sweeper.n_trials=3", "hydra.sweeper.sampler.seed=5"),
    ],
}


class Scenario:
    """One configuration, whose undisturbed run is in `folder/name`; those of the others add a number to its name."""

    def __init__(self, name: str, folder: Path):
        self.path, self.counts, self.faults = folder / name, Counter[str](), list[str]()
        overrides = [text.replace("OLD", str(folder / OLD)) for text in SCENARIOS[name]]
        self._is_sweep = "-m" in overrides
        where = "hydra.sweep.dir" if self._is_sweep else "hydra.run.dir"
        self._command = [*overrides[: self._is_sweep], "resume=auto", *SMALL, *overrides[self._is_sweep :], f"{where}="]
        began_s = time.perf_counter()
        if code := wait(self._start(self.path), 600):
            raise SystemExit(f"{name}: the undisturbed run ended with {code}: {self._last_output(self.path)}")
        self._whole_s = time.perf_counter() - began_s
        self._expected = results(self.path)

    def attempt(self, chance: random.Random, until_s: float) -> None:
        """Kills and repeats a run until it is finished, with no kills after `until_s`."""
        self.counts["started"] += 1
        path = self.path.with_name(f"{self.path.name}_{self.counts['started']}")
        if self._finish(path, chance, until_s):
            self.counts["runs"] += 1
            got = results(path)
            parts = [name for name in self._expected | got if not same(got.get(name), self._expected.get(name))]
            self.faults += [f"{part} differs ({path})" for part in parts]
        if not self.faults:
            shutil.rmtree(path)

    def _finish(self, path: Path, chance: random.Random, until_s: float) -> bool:
        """Returns whether the run ended without a fault."""
        span_s = 0.2 * self._whole_s  # kills fall within this time; it grows while no new checkpoint is reached
        while True:
            before = find(path, "step_*")
            is_late = time.perf_counter() >= until_s
            process = self._start(path, fresh=chance.random() < 0.1)
            code = wait(process, 600 if is_late else chance.uniform(0, span_s))
            if code is None and chance.random() < 0.5:
                wait_until(lambda: not find(path, ".step_*"))  # what an earlier kill has left
                wait_until(lambda: bool(find(path, ".step_*")) or (path / "finished.json").exists())
                code = wait(process, chance.uniform(0, 0.008))
            if code is None:
                number = signal.SIGTERM if chance.random() < 0.2 and not self._is_sweep else signal.SIGKILL
                self.counts[number.name] += 1
                with suppress(ProcessLookupError):
                    os.kill(process, number) if number == signal.SIGTERM else os.killpg(process, number)
                code = wait(process, 60)
                self.counts["during a write"] += bool(find(path, ".step_*"))
                span_s *= 1.3 if find(path, "step_*") == before else 0.9
                if code in (-number, 75):
                    continue
            if code != 0:
                self.faults.append(f"exit code {code}: {self._last_output(path)} ({path})")
            return code == 0

    def _start(self, path: Path, fresh: bool = False) -> int:
        """Starts the command in a process group of its own; returns the process id."""
        arguments = ["train.py", *self._command[:-1], self._command[-1] + str(path)]
        log = os.open(path.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if fresh:
            self.counts["new interpreters"] += 1
            command = [sys.executable, *arguments]
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True).pid
        if child := os.fork():
            os.close(log)
            return child
        code = 1
        try:
            os.setsid(), os.dup2(log, 1), os.dup2(log, 2), os.chdir(ROOT)
            sys.argv = arguments
            runpy.run_path("train.py", run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else bool(end.code)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)

    def _last_output(self, path: Path) -> str:
        return " / ".join(path.with_suffix(".txt").read_text(errors="replace").splitlines()[-3:])


def results(folder: Path) -> dict[str, Any]:
    """Returns what a run, or each finished run of a sweep, has to agree in."""
    runs = [path.parent for path in folder.rglob("finished.json")]
    return {f"{run.relative_to(folder)} {name}": part for run in runs for name, part in result(run).items()}


def find(folder: Path, name: str) -> set[str]:
    """Returns the paths below `folder`."""
    pattern = f"{glob.escape(str(folder))}/**/{name}"
    return set(glob.glob(pattern, recursive=True))  # noqa: PTH207 - a folder renamed meanwhile stops Path.rglob


def wait(process: int, seconds: float) -> int | None:
    """Returns the exit code (negative for a signal), or None if the process still runs after `seconds`."""
    until_s = time.perf_counter() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.perf_counter() >= until_s:
            return None
        time.sleep(0.001)


def wait_until(condition: Callable[[], bool], seconds: float = 2) -> None:
    """Returns when the condition holds, or after `seconds`."""
    until_s = time.perf_counter() + seconds
    while not condition() and time.perf_counter() < until_s:
        time.sleep(0.0005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="seed of the instants")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    chance, until_s = random.Random(arguments.seed), time.perf_counter() + 60 * arguments.minutes
    folder, scenarios = Path(tempfile.mkdtemp(prefix="crash_test_")), dict[str, Scenario]()
    if "preloaded" in arguments.only:
        scenarios[OLD] = Scenario(OLD, folder)
    order = chance.sample(arguments.only, len(arguments.only))
    while time.perf_counter() < until_s:
        for name in order:
            if time.perf_counter() < until_s:
                scenarios[name] = scenarios.get(name) or Scenario(name, folder)
                scenarios[name].attempt(chance, until_s)
    total, faults = Counter[str](), 0
    for name, scenario in scenarios.items():
        verdict = "; ".join(["DIFFERS", *scenario.faults]) if scenario.faults else "every byte the same"
        counted = ", ".join(f"{scenario.counts[key]} {key}" for key in ("runs", "SIGKILL", "during a write", "SIGTERM"))
        print(f"{name:15} {counted}: {verdict}")
        total, faults = total + scenario.counts, faults + len(scenario.faults)
    print(f"{total['SIGKILL']} SIGKILL and {total['SIGTERM']} SIGTERM in {total['runs']} runs, seed {arguments.seed}")
    if not faults:
        shutil.rmtree(folder)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
