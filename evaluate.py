"""Evaluates a checkpoint: `python evaluate.py exp/<day>/<run>`, or `.../checkpoints/step_<number>` for an older one.

`--best` plays the policy that was evaluated best during training. A policy's file is played too
(`python evaluate.py policies/cheetah_run.pt`), and filmed if you say where: `--video out.mp4`.

Prints the return of each episode and films the first one. Without `--seed`, it plays the same episodes as the
evaluation during training at that step. It needs neither the replay buffer nor a GPU.

`--dataset cheetah/expert-v0` records the episodes as a data set of Minari's (docs/DATA.md).
"""

import argparse
import dataclasses
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym
import numpy as np

from envs.episodes import Recorder, Recording
from run import machine
from run.data import recorded
from run.evaluation.evaluator import Evaluator
from run.saving import best, policy_bundle, run_policy, trust
from settings.operating_system import require_posix
from utils import EnvError, RunError, UserError, one_line


def evaluate(
    path: Path,
    num_episodes: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    film: Path | None = None,
    trusted: Sequence[str] = (),
    sample: bool | None = None,
    dataset_id: str | None = None,
) -> list[float]:
    """Plays episodes with the policy of a checkpoint.

    Args:
        path: the folder of a run (its newest whole checkpoint is used) or a checkpoint in it; `checkpoints/best` is
            the policy that was evaluated best. Or a policy's file (see run/saving/policy_bundle.py).
        num_episodes: None for as many as in training.
        seed: seed of the episodes; None for the seed of the run.
        device: as the key of that name.
        film: where to write the video of the first episode; None films nothing.
        trusted: packages whose classes the run's configuration may name beside this project's.
        sample: whether actions are sampled or greedy; None is as in training's evaluations.
        dataset_id: of the data set that the episodes are written to; None writes none.

    Returns:
        The episodes' returns.

    Raises:
        UserError: if there is no whole checkpoint, or it does not fit the run's configuration, or the data set cannot
            be written.
    """
    if dataset_id is not None:
        recorded.require_new(dataset_id)
    played = run_policy.load(path, device, trusted, renders=film is not None)
    if film is not None and not machine.can_film(played.renders):
        film = None
    cfg = played.cfg
    sampled = cfg.eval_sample if sample is None else sample
    recordings: list[Recording] = []
    began_ns = time.time_ns()

    def make_env(renders: bool) -> gym.Env:
        env = played.make_env(renders)
        return env if dataset_id is None else Recorder(env, recordings)

    evaluator = Evaluator(
        make_env,
        cfg.seed if seed is None else seed,
        num_episodes or cfg.num_eval_episodes,
        (lambda step: film) if film is not None else None,
        cfg.action_repeat,
        sample=sampled,
    )
    try:
        returns, lengths = dataclasses.astuple(evaluator.evaluate(played.actor, played.step))
    finally:
        evaluator.close()
    for episode, (value, length) in enumerate(zip(returns, lengths, strict=True), start=1):
        print(f"episode {episode}: return {value:.4f}, {length} steps")
    print(f"{played.path}: mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    if film is not None and film.exists() and film.stat().st_mtime_ns >= began_ns:
        print(film)
    if dataset_id is not None:
        print(recorded.write(dataset_id, recordings, played, sampled))
    return returns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the folder of a run, a checkpoint in it, or a policy's file")
    parser.add_argument("--best", action="store_true", help="the policy of the run's best evaluation")
    parser.add_argument("--episodes", type=int, default=None, help="number of episodes (default: as in training)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the episodes (default: the seed of the run)")
    parser.add_argument(
        "--sample",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="sample the actions, or take the greedy ones (default: as in training's evaluations)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:<number> (default: auto)")
    parser.add_argument(
        "--video", type=Path, default=None, help="default: <run folder>/video/evaluate.mp4; a policy's file: none"
    )
    parser.add_argument("--no-video", action="store_true", help="do not film")
    parser.add_argument("--dataset", default=None, metavar="ID", help="record them, such as cheetah/expert-v0")
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="a package of your own whose classes the run may name; repeat it for several, or separate them by commas",
    )
    arguments = parser.parse_args()
    path = (arguments.path / best.BEST if arguments.best else arguments.path).resolve()
    beside = None if policy_bundle.is_file(path) else run_policy.run_folder_of(path) / "video" / "evaluate.mp4"
    film = None if arguments.no_video else arguments.video or beside
    try:
        require_posix()
        if arguments.episodes is not None and arguments.episodes < 1:
            raise UserError(f"--episodes {arguments.episodes}: 1 or more")
        if arguments.seed is not None and arguments.seed < 0:
            raise UserError(f"--seed {arguments.seed}: 0 or more")
        if arguments.video is not None and (arguments.video.is_dir() or not arguments.video.name):
            raise UserError(f"--video {arguments.video}: a folder; name a file")
        trusted = [name for given in arguments.trust for name in trust.names(given)]
        evaluate(
            path,
            arguments.episodes,
            arguments.seed,
            arguments.device,
            film,
            trusted,
            arguments.sample,
            arguments.dataset,
        )
    except (UserError, RunError) as error:
        print(f"evaluate.py: {one_line(error)}", file=sys.stderr)
        if isinstance(error, EnvError) and error.__cause__:
            traceback.print_exception(error.__cause__)  # its author needs it
        return 2 if isinstance(error, UserError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
