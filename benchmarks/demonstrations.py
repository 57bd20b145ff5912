"""What twenty demonstrations are worth: the same 20 000 steps without them, and with half of every batch from them.

    python benchmarks/demonstrations.py [--tasks …] [--seeds 1 2 3] [--steps 20000]

preset=fast learns each task for longer, and the policy of its best evaluation plays twenty episodes. Then it learns
anew with other seeds: without them, and with preload=… preload_share=0.5. One process at a time, as nice as can be.
Writes benchmarks/results/demonstrations.json and prints the table; runs in exp/benchmarks/demonstrations that are
finished are not made again.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from statistics import mean

from training import ROOT, Job, circumstances, curve, done, made_by, mean_and_spread, options, ours, record_of

FOLDER, RESULT = ROOT / "exp" / "benchmarks" / "demonstrations", ROOT / "benchmarks" / "results" / "demonstrations.json"
TASKS = ("cheetah_run",)
TEACHER_STEPS, EPISODES, TEACHER_SEED, EVERY = 60_000, 20, 100, 5_000
ALONE = ("preset=fast", "eval_in_background=false")


def run(job: Job) -> None:
    """Makes a job that is not made yet; nice, as it is nobody's hurry."""
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
    made = ours(FOLDER / f"teacher_{task}", task, TEACHER_SEED, [*ALONE, *lengths])
    return Job(made.folder, [word for word in made.command if word != "checkpoint_frequency=0"])


def demonstrations(task: str) -> Job:
    play = [sys.executable, "evaluate.py", str(teacher(task).folder), "--best", "--no-video", "--device", "cpu"]
    return Job(FOLDER / task / "demo-v0", [*play, "--episodes", str(EPISODES), "--dataset", f"{task}/demo-v0"], "data")


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
        said = demonstrations(task).folder.with_suffix(".log").read_text(errors="replace")
        played = [float(line.split()[3].rstrip(",")) for line in said.splitlines() if line.startswith("episode ")]
        names = list(variants(task))
        for seed in args.seeds:
            for name in names:
                run(student(task, name, seed, args.steps))
        runs = {n: [curve(student(task, n, seed, args.steps).folder) for seed in args.seeds] for n in names}
        tasks[task] = {
            "demonstrations": {"episodes": len(played), "returns": played},
            "curves": {name: [run._asdict() for run in found] for name, found in runs.items()},
        }
        print(f"{task}: {len(played)} demonstrations, mean return {mean(played):.0f}")
        print(f"| demonstrations | {' | '.join(str(int(step)) for step in runs[names[0]][0].steps)} |")
        for name, found in runs.items():
            cells = [mean_and_spread(at_step) for at_step in zip(*(run.returns for run in found), strict=True)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    result = {**circumstances(), "machine": circumstances()["machine"].replace("a run on each", "one run at a time")}
    result |= {"preset": "fast", "steps": args.steps, "seeds": args.seeds, "tasks": tasks}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
