"""Measures what `physics=batched` saves: `python benchmarks/batched_physics.py [--parts collecting,evaluations,...]`.

It takes turns with `physics=suite` in three parts: steps/s of 64 environments with random actions, evaluations of ten
episodes, and whole runs in one environment. A fourth part compares worlds stepped by one thread with worlds stepped by
one thread per core. Reports median wall and CPU times, and mostly the lowest CPU time, which other processes disturb
least. Writes benchmarks/results/batched_physics.json; parts that are not measured keep their numbers.
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
from machine import ROOT, circumstances

from physics import tasks
from physics.worlds import TIMED
from run import build, environments
from run.evaluation.background import make_evaluator
from settings import compose
from settings.schema import Settings, check

RESULT = ROOT / "benchmarks" / "results" / "batched_physics.json"
ENGINES: tuple[Literal["suite", "batched"], ...] = ("suite", "batched")
TASKS = ("cheetah_run", "walker_run", "hopper_hop", "humanoid_run")
NUM_ENVS, ROUNDS, STEPS = 64, 100, 1
RUNS = {  # shortened, with slightly fewer evaluation episodes per step than the presets
    "cheetah_run preset=fast": ["env=cheetah_run", "preset=fast", "num_train_steps=16000", "num_eval_episodes=6"],
    "dog_run preset=strong": ["env=dog_run", "preset=strong", "num_train_steps=6000", "num_eval_episodes=2"],
}
THREADED = (1, 2, 4, 10, 64)  # worlds

Work = Callable[[], Any]


def settings_of(*overrides: str) -> Settings:
    return check(compose.plain(compose.compose_config("train", list(overrides))))


def in_turns(work: dict[str, Work], rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Returns, by name, the median wall and CPU seconds and the lowest CPU seconds."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, do in work.items():
            began = time.perf_counter(), time.process_time()
            do()
            seconds[name].append((time.perf_counter() - began[0], time.process_time() - began[1]))
    return {
        name: {"wall": median(wall for wall, _ in both), "cpu": median(cpu for _, cpu in both)}
        | {"least_cpu": min(cpu for _, cpu in both)}
        for name, both in seconds.items()
    }


def ratios(seconds: dict[str, dict[str, float]]) -> dict[str, float]:
    """Returns the ratio batched / suite on each clock."""
    return {clock: round(each / seconds["suite"][clock], 3) for clock, each in seconds["batched"].items()}


def stepping(envs: Any, count: int) -> Work:
    """Returns a function that takes STEPS steps with random actions in all environments."""
    random, everyone = np.random.default_rng(0), np.ones(count, bool)
    envs.reset(options={"reset_mask": everyone})

    def step() -> None:
        for _ in range(STEPS):
            actions = random.uniform(-1, 1, (count, *envs.single_action_space.shape)).astype(np.float32)
            _, _, terminated, truncated, _ = envs.step(actions)
            if (terminated | truncated).any():
                envs.reset(options={"reset_mask": everyone})

    return step


def collecting(task: str) -> dict[str, Any]:
    cfg = settings_of(f"env={task}", f"num_envs={NUM_ENVS}")
    envs = {engine: environments.make_train_envs(replace(cfg, physics=engine)) for engine in ENGINES}
    work: dict[str, Work] = {engine: stepping(each, NUM_ENVS) for engine, each in envs.items()}
    in_turns(work, TIMED)  # until then one thread steps all worlds
    seconds = in_turns(work)
    for each in envs.values():
        each.close()
    rates = {
        engine: {clock: round(NUM_ENVS * STEPS / s) for clock, s in each.items()} for engine, each in seconds.items()
    }
    return {"steps_per_s": rates, "times_as_many": {clock: round(1 / r, 2) for clock, r in ratios(seconds).items()}}


def evaluations(task: str) -> dict[str, Any]:
    cfg = settings_of(f"env={task}", "preset=fast", "save_video=false", "device=cpu")
    with contextlib.closing(build.build(cfg)) as parts:
        made = {engine: make_evaluator(replace(cfg, physics=engine), Path(), False) for engine in ENGINES}
        seconds = in_turns({name: partial(each.evaluate, parts.agent, 0) for name, each in made.items()}, 3)
    shown = {name: {clock: round(s, 3) for clock, s in each.items()} for name, each in seconds.items()}
    return {"seconds": shown, "ratio": ratios(seconds)}


def whole_runs(overrides: list[str]) -> dict[str, Any]:
    def run(engine: str) -> tuple[float, float]:
        """Returns the wall and CPU seconds of the command."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "train.py", *overrides, f"physics={engine}", f"hydra.run.dir={folder}/run"]
            command += ["save_video=false", "save_figure=false"]
            before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wall_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
        return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    taken = [{engine: run(engine) for engine in ENGINES} for _ in range(3)]
    seconds: dict[str, dict[str, float]] = {
        engine: {clock: median(each[engine][number] for each in taken) for number, clock in enumerate(("wall", "cpu"))}
        for engine in ENGINES
    }
    return {"seconds": seconds, "ratio": ratios(seconds)}


def threads(task: str) -> dict[str, float]:
    """Returns, by number of worlds, the wall time with one thread per core divided by that with one thread."""
    return dict(_threads(settings_of(f"env={task}")))


def _threads(cfg: Settings) -> Iterator[tuple[str, float]]:
    from physics.training import TrainingWorlds
    from physics.worlds import Worlds

    make_env, make_task = environments.make_env_factory(cfg, "training"), tasks.get(cfg.env)
    for count in THREADED:
        numbers = 1, os.cpu_count() or 1
        worlds: list[Any] = [Worlds(make_env(False), make_task, cfg.env, count, number) for number in numbers]
        worlds[1]._worthwhile = partial(min, worlds[1]._threads)
        steps = [stepping(TrainingWorlds(each, 1), count) for each in worlds]
        seconds = in_turns({"suite": steps[0], "batched": steps[1]}, 40)
        for each in worlds:
            each.close()
        yield str(count), ratios(seconds)["wall"]


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "collecting": lambda: {task: collecting(task) for task in TASKS},
    "evaluations": lambda: {task: evaluations(task) for task in TASKS},
    "whole_runs": lambda: {name: whole_runs(overrides) for name, overrides in RUNS.items()},
    "threads": lambda: {task: threads(task) for task in TASKS},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    figures = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    for part in parser.parse_args().parts.split(","):
        figures = figures | {part: circumstances() | PARTS[part]()}
        print(json.dumps({part: figures[part]}), flush=True)
        RESULT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
