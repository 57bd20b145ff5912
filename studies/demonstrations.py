"""Measures the worth of twenty demonstrations: 20 000 steps without them, and with half of each batch from them.

    python studies/demonstrations.py [--tasks …] [--seeds 1 2 3] [--steps 20000]

A teacher (preset=fast) learns each task for longer, and its best policy records twenty episodes. Students with other
seeds then learn without these, or with preload=… preload_share=0.5. Runs one process at a time, at low priority. Writes
benchmarks/results/demonstrations.json and prints the table. Reuses finished runs in exp/benchmarks/demonstrations.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from statistics import mean

import instruments  # noqa: F401  (finds benchmarks/)
from machine import circumstances
from training import ROOT, Job, curve, done, made_by, mean_and_spread, options, ours, record_of

FOLDER, RESULT = ROOT / "exp" / "benchmarks" / "demonstrations", ROOT / "benchmarks" / "results" / "demonstrations.json"
TASKS = ("cheetah_run",)
TEACHER_STEPS, EPISODES, TEACHER_SEED, EVERY = 60_000, 20, 100, 5_000
ALONE = ("preset=fast", "n_step=3", "eval_in_background=false")


def run(job: Job) -> None:
    """Runs a job at low priority, unless it is done."""
    if done(job):
        return
    shutil.rmtree(job.folder, ignore_errors=True)
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    began_s = time.perf_counter()
    environment = os.environ | {"MINARI_DATASETS_PATH": str(FOLDER)}
    with job.folder.with_suffix(".log").open("w") as log:
        command = ["nice", "-n", "15", *job.command]
        subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True)
    record_of(job).write_text(made_by(job), encoding="utf-8")
    print(f"{job.folder.name}: {time.perf_counter() - began_s:.0f} s", flush=True)


def teacher(task: str) -> Job:
    lengths = [f"num_train_steps={TEACHER_STEPS}", "eval_frequency=10000", "checkpoint_frequency=20000"]
    job = ours(FOLDER / f"teacher_{task}", task, TEACHER_SEED, [*ALONE, *lengths])
    return Job(job.folder, [word for word in job.command if word != "checkpoint_frequency=0"])


def demonstrations(task: str) -> Job:
    record = [sys.executable, "evaluate.py", str(teacher(task).folder), "--best", "--no-video", "--device", "cpu"]
    return Job(
        FOLDER / task / "demo-v0", [*record, "--episodes", str(EPISODES), "--dataset", f"{task}/demo-v0"], "data"
    )


def variants(task: str) -> dict[str, list[str]]:
    return {"without": [], "half of every batch": [f"preload={task}/demo-v0", "preload_share=0.5"]}


def student(task: str, name: str, seed: int, steps: int) -> Job:
    lengths = [*ALONE, f"num_train_steps={steps}", f"eval_frequency={EVERY}"]
    folder = FOLDER / f"{steps}" / f"{name.replace(' ', '_')}__{task}_s{seed}"
    return ours(folder, task, seed, [*lengths, *variants(task)[name]])


def main() -> None:
    parser = options(__doc__, TASKS)
    parser.add_argument("--steps", type=int, default=20_000)
    args = parser.parse_args()
    tasks = {}
    for task in args.tasks:
        run(teacher(task))
        run(demonstrations(task))
        log = demonstrations(task).folder.with_suffix(".log").read_text(errors="replace")
        returns = [float(line.split()[3].rstrip(",")) for line in log.splitlines() if line.startswith("episode ")]
        names = list(variants(task))
        for seed in args.seeds:
            for name in names:
                run(student(task, name, seed, args.steps))
        runs = {n: [curve(student(task, n, seed, args.steps).folder) for seed in args.seeds] for n in names}
        tasks[task] = {
            "demonstrations": {"episodes": len(returns), "returns": returns},
            "curves": {name: [run._asdict() for run in found] for name, found in runs.items()},
        }
        print(f"{task}: {len(returns)} demonstrations, mean return {mean(returns):.0f}")
        print(f"| demonstrations | {' | '.join(str(int(step)) for step in runs[names[0]][0].steps)} |")
        for name, found in runs.items():
            cells = [mean_and_spread(at_step) for at_step in zip(*(run.returns for run in found), strict=True)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    result = circumstances() | {"preset": "fast", "steps": args.steps, "seeds": args.seeds, "tasks": tasks}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
