"""Compares ways to keep preset=strong's best returns until the end of a run, on eight tasks.

    python studies/keeping.py [--candidates …] [--tasks …] [--seeds 11] [--report]

A candidate is a list of overrides on top of the preset as it was before its actor was averaged. A run is evaluated
every 12 500 steps with fifty episodes (twenty in the first rows). Its evaluations are lines of
benchmarks/results/keeping.csv, and it is not repeated unless its candidate's settings have changed. A candidate that
trains like another until FORK continues from the other run's checkpoint there. This gives the same bytes as a run from
the start, in three eighths of the time; until FORK it has the other run's evaluations. Averaging does not change
training. So with --newest, the newest (not averaged) weights of an averaged run are evaluated at its checkpoints, in
place of a run of the preset. Of the suite's other tasks only finger_turn_hard was run (noise that fades, seeds 1 to 3,
by benchmarks/suite.py with these settings; the preset's runs are the suite's). --report runs nothing and prints only
the table: the last return, the best, and last / best.
"""

import shutil
from collections.abc import Sequence
from itertools import product
from operator import itemgetter
from pathlib import Path
from statistics import mean

import instruments  # noqa: F401  (finds benchmarks/)
import suite
from omegaconf import OmegaConf
from records import Records, digest
from training import ROOT, Curve, Job, curve, done, finish, made_by, options, ours, record_of, recorded

from agent.policy_file import load_policy
from files.tensors import load_plain
from run.evaluation.background import make_evaluator
from run.saving.resume import continuation

FOLDER = ROOT / "exp" / "benchmarks" / "keeping"
RUNS = Records(ROOT / "benchmarks" / "results" / "keeping.csv", ("candidate", "task", "seed", "settings"))
TASKS = (
    *("cartpole_balance", "finger_turn_easy", "cheetah_run", "acrobot_swingup"),
    *("reacher_hard", "walker_run", "hopper_stand", "quadruped_walk"),
)
STEPS, EVERY, FORK = 100_000, 12_500, 62_500
BASE = "base"


def rates(final: float, start: float = 1e-3) -> tuple[str, ...]:
    """Returns overrides that hold the learning rates for two thirds of a run, then move them linearly to `final`."""
    schedule = f"{{_target_: agent.schedule.Piecewise, points: [[{2 * STEPS // 3}, {start}], [{STEPS}, {final}]]}}"
    return tuple(f"agent.{part}_lr={schedule}" for part in ("alpha", "actor", "critic"))


SLOW = (
    *(f"agent.{net}.network.unit_length=weights" for net in ("actor", "critic")),
    *(f"agent.{part}_lr=3e-4" for part in ("alpha", "actor", "critic")),
    "agent.critic_tau=0.005",
)
# Noise is held as before until FORK, then for fewer and fewer decisions.
FADES = f"{{_target_: agent.schedule.Piecewise, points: [[{FORK}, 2.0], [{7 * STEPS // 8}, 8.0]]}}"
FADES_EARLY = f"{{_target_: agent.schedule.Piecewise, points: [[{STEPS // 8}, 2.0], [{3 * STEPS // 8}, 8.0]]}}"
CATEGORICAL = (
    "agent/reward_normaliser=returns_unbounded",
    "agent.critic.head={_target_: agent.networks.CategoricalHead, _partial_: true, num_bins: 101, bounds: [-5, 5]}",
)
AVERAGE = "average, 0.0005"
CANDIDATES: dict[str, tuple[str, ...]] = {
    BASE: (),
    "rates fall to a tenth": rates(1e-4),
    "rates fall to a half": rates(5e-4),
    "unit lengths, slow targets, rates of 3e-4": SLOW,
    "weight decay of critics, 1e-2": ("agent.critic_weight_decay=1e-2",),
    "average, 0.0005": ("agent.actor_average_share=0.0005",),
    "average, 0.001": ("agent.actor_average_share=0.001",),
    "average, 0.0005, fading rows": ("agent.actor_average_share=0.0005", "replay_buffer=fading"),
    "average, 0.0005, unit lengths, slow targets, rates of 3e-4": ("agent.actor_average_share=0.0005", *SLOW),
    "average, 0.0005, slow targets": ("agent.actor_average_share=0.0005", "agent.critic_tau=0.005"),
    "average, 0.0005, weight decay of critics, 1e-2": (
        "agent.actor_average_share=0.0005",
        "agent.critic_weight_decay=1e-2",
    ),
    "average, 0.0005, targets of the minimum": (
        "agent.actor_average_share=0.0005",
        "agent.critic.head.target_q=min",
    ),
    "average, 0.0005, 10 000 random steps": ("agent.actor_average_share=0.0005", "num_seed_steps=10_000"),
    "average, 0.0005, temperature 1 at first": ("agent.actor_average_share=0.0005", "agent.init_temperature=1.0"),
    "average, 0.0005, rates fall to a tenth": ("agent.actor_average_share=0.0005", *rates(1e-4)),
    "average, 0.001, rates fall to a tenth": ("agent.actor_average_share=0.001", *rates(1e-4)),
    "average, 0.0005, held noise fades": ("agent.actor_average_share=0.0005", f"agent.exploration.exponent={FADES}"),
    "average, 0.0005, held noise fades early": (
        "agent.actor_average_share=0.0005",
        f"agent.exploration.exponent={FADES_EARLY}",
    ),
    "average, 0.0005, no held noise": ("agent.actor_average_share=0.0005", "agent/exploration=none"),
    "average, 0.0005, categorical critics": ("agent.actor_average_share=0.0005", *CATEGORICAL),
}
LATE = {  # candidate: the one that trains the same until FORK
    "rates fall to a tenth": BASE,
    "rates fall to a half": BASE,
    "average, 0.0005, rates fall to a tenth": AVERAGE,
    "average, 0.001, rates fall to a tenth": "average, 0.001",
    "average, 0.0005, held noise fades": AVERAGE,
}

Key = tuple[str, str, int]  # candidate, task, seed


def job(candidate: str, task: str, seed: int) -> Job:
    name = "".join(letter if letter.isalnum() else "_" for letter in candidate)
    overrides = ["preset=strong", "agent.actor_average_share=0", *CANDIDATES[candidate]]
    overrides += [f"num_train_steps={STEPS}", f"eval_frequency={EVERY}", "num_eval_episodes=50"]
    return ours(FOLDER / f"{name}__{task}_s{seed}", task, seed, overrides, EVERY, STEPS // EVERY)


def settings(candidate: str) -> str:
    """Returns a digest of the candidate's settings."""
    return digest([CANDIDATES.get(candidate), suite.BEFORE])


def found() -> dict[Key, Curve]:
    """Returns the recorded runs that were made with their candidates' present settings."""
    return {
        (candidate, task, int(seed)): run
        for (candidate, task, seed, made), run in RUNS.read().items()
        if made == settings(candidate)
    }


def fork(candidate: str, task: str, seed: int) -> None:
    """Copies the folder of the run that the candidate continues, as it was at FORK, unless the candidate's has begun.

    Does nothing if that run has no checkpoint at FORK.
    """
    target, source = job(candidate, task, seed), job(LATE[candidate], task, seed)
    is_begun = target.folder.exists() and recorded(target) == made_by(target)
    if is_begun or not (source.folder / "checkpoints" / f"step_{FORK}").exists():
        return
    shutil.rmtree(target.folder, ignore_errors=True)
    shutil.copytree(source.folder, target.folder)
    (target.folder / target.result).unlink(missing_ok=True)
    for path in (target.folder / "checkpoints").glob("step_*"):
        if int(path.name.removeprefix("step_")) > FORK:
            shutil.rmtree(path)
    config = target.folder / "config.yaml"
    changed = OmegaConf.merge(OmegaConf.load(config), OmegaConf.from_dotlist(list(CANDIDATES[candidate])))
    OmegaConf.save(changed, config)
    record_of(target).write_text(made_by(target), encoding="utf-8")


def run(keys: Sequence[Key]) -> None:
    def keep(index: int) -> None:
        candidate, task, seed = keys[index]
        RUNS.add((*keys[index], settings(candidate)), curve(job(candidate, task, seed).folder))

    for candidate, task, seed in keys:
        if candidate in LATE and not done(job(candidate, task, seed)):
            fork(candidate, task, seed)
    finish([job(*key) for key in keys], after=keep)


def newest(candidate: str, task: str, seed: int) -> Curve:
    """Evaluates the newest weights of an averaged run, on the evaluation episodes of the preset's own run."""
    folder = job(candidate, task, seed).folder
    steps, seconds, _ = curve(folder)
    return Curve(steps, seconds, [newest_return(folder, int(step)) for step in steps])


def newest_return(folder: Path, step: int) -> float:
    """Returns the newest weights' mean return in the episodes in which the run evaluated their average."""
    evaluator = make_evaluator(continuation(folder, []).cfg, folder, films=False)
    checkpoint = folder / "checkpoints" / f"step_{step}"
    policy = load_policy(checkpoint / "policy.pt")
    policy.actor.load_state_dict(load_plain(checkpoint / "agent.pt")["actor"])
    return mean(evaluator.evaluate(policy, step).returns)


def report(candidates: Sequence[str], tasks: Sequence[str], seeds: Sequence[int]) -> None:
    """Prints a row for each candidate: on each task the last and the best return, as means over seeds.

    The columns after the tasks are means over all its runs; "the preset's" is the preset's last return on the same
    tasks and seeds.
    """
    runs = found()
    print(f"| candidate | {' | '.join(tasks)} | last | the preset's | best | last / best | runs | seconds |")
    print("|" + " --- |" * (len(tasks) + 7))
    for candidate in candidates:
        mine = {
            key[1:]: run for key, run in runs.items() if key[0] == candidate and key[1] in tasks and key[2] in seeds
        }
        if not mine:
            continue
        last, best = ({key: of(run.returns) for key, run in mine.items()} for of in (itemgetter(-1), max))
        preset = [runs[BASE, *key].returns[-1] for key in mine if (BASE, *key) in runs]
        of_task = {task: [key for key in mine if key[0] == task] for task in tasks}
        cells = [
            f"{mean(last[key] for key in keys):.0f} / {mean(best[key] for key in keys):.0f}" if keys else ""
            for keys in of_task.values()
        ]
        cells += [f"{mean(last.values()):.0f}", f"{mean(preset):.0f}" if len(preset) == len(mine) else ""]
        cells += [f"{mean(best.values()):.0f}", f"{mean(last.values()) / mean(best.values()):.3f}", f"{len(mine)}"]
        print(f"| {candidate} | {' | '.join(cells)} | {mean(run.seconds[-1] for run in mine.values()):.0f} |")


def main() -> None:
    parser = options(__doc__, TASKS, (11,))
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--newest", choices=CANDIDATES, help="an averaged candidate, whose runs also give the preset's")
    args = parser.parse_args()
    if args.newest:
        records = found()
        for task, seed in product(args.tasks, args.seeds):
            if (args.newest, task, seed) in records and (BASE, task, seed) not in records:
                RUNS.add((BASE, task, seed, settings(BASE)), newest(args.newest, task, seed))
    elif not args.report:
        records = found()
        missing = [
            (candidate, task, seed)
            for seed, candidate, task in product(args.seeds, args.candidates, args.tasks)
            if (candidate, task, seed) not in records
        ]
        run([key for key in missing if key[0] not in LATE])  # the others may continue these
        run([key for key in missing if key[0] in LATE])
    report(args.candidates, args.tasks, args.seeds)


if __name__ == "__main__":
    main()
