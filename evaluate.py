"""Evaluates a checkpoint: `python evaluate.py exp/<day>/<run>`, or `.../checkpoints/step_<number>` for an older one.

`--best` evaluates the policy of the best evaluation during training. The file of a policy can be evaluated too
(`python evaluate.py policies/cheetah_run.pt`); it is filmed with `--video out.mp4`.

Prints the return of each episode and films the first one. Without `--seed`, the episodes are those of the evaluation
during training at that step. Neither the replay buffer nor a GPU is needed.

`--dataset cheetah/expert-v0` records the episodes as a Minari data set (docs/DATA.md).
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

from envs import opengl
from envs.episodes import Recorder, Recording
from run.data import minari_writer
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
    """Evaluates the policy of a checkpoint.

    Args:
        path: the folder of a run (its newest complete checkpoint is used) or a checkpoint in it; `checkpoints/best` is
            the policy of the best evaluation. Or the file of a policy (see run/saving/policy_bundle.py).
        num_episodes: the number of episodes; None is the run's num_eval_episodes.
        seed: the seed of the episodes; None is the run's seed.
        device: as the key of that name.
        film: the file for the video of the first episode; None films nothing.
        trusted: packages, besides this project's, whose classes the run's configuration may name.
        sample: whether actions are sampled or greedy; None is the run's eval_sample.
        dataset_id: the id of a data set to write the episodes to; None writes none.

    Returns:
        The episodes' returns.

    Raises:
        UserError: if there is no complete checkpoint, if it does not fit the run's configuration, or if the data set
            cannot be written.
    """
    if dataset_id is not None:
        minari_writer.require_new(dataset_id)
    policy = run_policy.load(path, device, trusted, renders=film is not None)
    if film is not None and not policy.renders:
        print(opengl.NO_OPENGL)
        film = None
    cfg = policy.cfg
    sample = cfg.eval_sample if sample is None else sample
    recordings: list[Recording] = []
    began_ns = time.time_ns()

    def make_env(renders: bool) -> gym.Env:
        env = policy.make_env(renders)
        return env if dataset_id is None else Recorder(env, recordings)

    evaluator = Evaluator(
        make_env,
        cfg.seed if seed is None else seed,
        num_episodes or cfg.num_eval_episodes,
        (lambda step: film) if film is not None else None,
        cfg.action_repeat,
        sample=sample,
    )
    try:
        returns, lengths = dataclasses.astuple(evaluator.evaluate(policy.actor, policy.step))
    finally:
        evaluator.close()
    for episode, (value, length) in enumerate(zip(returns, lengths, strict=True), start=1):
        print(f"episode {episode}: return {value:.4f}, {length} steps")
    print(f"{policy.path}: mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    if film is not None and film.exists() and film.stat().st_mtime_ns >= began_ns:
        print(film)
    if dataset_id is not None:
        print(minari_writer.write(dataset_id, recordings, policy, sample))
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
    parser.add_argument("--dataset", default=None, metavar="ID", help="record a data set, such as cheetah/expert-v0")
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="a package of your own whose classes the run may name; repeat it for several, or separate them by commas",
    )
    arguments = parser.parse_args()
    path = (arguments.path / best.BEST if arguments.best else arguments.path).resolve()
    default = None if policy_bundle.is_bundle(path) else run_policy.run_folder_of(path) / "video" / "evaluate.mp4"
    film = None if arguments.no_video else arguments.video or default
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
            traceback.print_exception(error.__cause__)  # for the author of the environment
        return 2 if isinstance(error, UserError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
