"""Evaluates a run's policy: `python evaluate.py exp/<day>/<run>`, or `.../checkpoints/step_<number>` for an older one.

`--best` evaluates the policy of the best evaluation during training. The file of a policy can be evaluated too
(`python evaluate.py policies/cheetah_run.pt`); it is filmed with `--video out.mp4`.

Prints the return of each episode when it ends, and films the first one. Without `--seed`, the episodes are those of
the evaluation during training at that step. Neither the replay buffer nor a GPU is needed.

`--view` shows them live in a window instead, one after the other until it is closed.

`--dataset cheetah/expert-v0` records the episodes as a Minari data set (docs/DATA.md).
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import gymnasium as gym
import numpy as np
from tqdm import tqdm

from envs.episodes import Recorder, Recording
from envs.opengl import NO_VIDEOS
from run.data import minari_writer
from run.evaluation import window
from run.evaluation.evaluator import EvaluationProgress, Evaluator
from run.saving import policy_bundle, run_policy, trust
from run.stopping import EXIT_INTERRUPTED
from settings.operating_system import begin_command
from utils import OneLineParser, RunError, UserError, print_error, resolved


class _ProgressBar(EvaluationProgress):
    """Prints the return of each episode when it ends, above a bar that counts steps."""

    def __init__(self, num_episodes: int):
        self._bar: tqdm[NoReturn] = tqdm(
            desc=f"{num_episodes} episodes",
            unit=" steps",
            dynamic_ncols=True,
            leave=False,
            disable=not sys.stderr.isatty(),
        )

    def stepped(self, steps: int) -> None:
        self._bar.update(steps)

    def ended(self, episode: int, value: float, length: int) -> None:
        tqdm.write(f"episode {episode + 1}: return {value:.4f}, {length} steps")
        sys.stdout.flush()

    def close(self) -> None:
        self._bar.close()


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
        path, device, trusted: see run.saving.run_policy.load.
        num_episodes, seed, sample: None uses the run's num_eval_episodes, seed, and eval_sample.
        film: the file for the video of the first episode; None records no video.
        dataset_id: the id of a data set to write the episodes to; None writes none.

    Returns:
        The episodes' returns.

    Raises:
        UserError: if there is no complete checkpoint, if it does not fit the run's configuration, or if the data set
            cannot be written.
    """
    policy = run_policy.load(path, device, trusted, renders=film is not None)
    if film is not None and not policy.renders:
        print(NO_VIDEOS)
        film = None
    if film is not None:
        with contextlib.suppress(OSError):  # the recorder reports it
            film.parent.mkdir(parents=True, exist_ok=True)
    cfg = policy.cfg
    sample = cfg.eval_sample if sample is None else sample
    recordings: list[Recording] = []
    began_ns = time.time_ns()

    count = num_episodes or cfg.num_eval_episodes
    make_env = policy.make_env
    if dataset_id is not None:  # a data set's episodes come from single environments, recorded one by one

        def make_env(renders: bool) -> gym.Env:
            return Recorder(policy.make_env(renders), recordings)

    progress = _ProgressBar(count)
    seed = cfg.seed if seed is None else seed
    video_path = None if film is None else lambda step: film
    evaluator = Evaluator(make_env, seed, count, video_path, cfg.action_repeat, sample=sample, progress=progress)
    try:
        evaluation = evaluator.evaluate(policy.actor, policy.step)
        returns = evaluation.returns
    finally:
        evaluator.close()
        progress.close()
    print(f"{policy.path}: mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    for key, values in evaluation.infos.items():
        print(f"{key}: mean {np.mean(values):.4f} over {len(values)} episodes")
    if film is not None and film.exists() and film.stat().st_mtime_ns >= began_ns:
        print(film)
    if dataset_id is not None:
        print(write_dataset(dataset_id, recordings, policy, sample))
    return returns


def view(
    path: Path,
    num_episodes: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    trusted: Sequence[str] = (),
    sample: bool | None = None,
) -> list[float]:
    """Shows the policy of a checkpoint live in a window; arguments and errors as for `evaluate`.

    Args:
        num_episodes: None shows episodes until the window is closed.

    Returns:
        The returns of the complete episodes.
    """
    window.require_display()
    policy = run_policy.load(path, device, trusted)
    seed = policy.cfg.seed if seed is None else seed
    sample = policy.cfg.eval_sample if sample is None else sample
    env, opened = window.open_window(policy)
    print(f"{window.KEYS}.", flush=True)
    returns = []
    try:
        for episode in window.watch(policy, env, opened, seed, num_episodes, sample):
            ending = "" if episode.complete else ", not complete"
            line = f"episode {episode.number}: return {episode.value:.4f}, {episode.length} steps{ending}"
            print(line, flush=True)
            if episode.complete:
                returns.append(episode.value)
    except KeyboardInterrupt:  # Ctrl+C ends the display, as closing the window does
        print()
    finally:
        opened.close()
        env.close()
    if returns:
        print(f"{policy.path}: mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    return returns


def require_sensible(arguments: argparse.Namespace) -> None:
    """Raises UserError for invalid values and for mutually exclusive arguments."""
    if arguments.episodes is not None and arguments.episodes < 1:
        raise UserError(f"--episodes {arguments.episodes}: 1 or more")
    if arguments.seed is not None and arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed}: 0 or more")
    if arguments.video is not None and (arguments.video.is_dir() or not arguments.video.name):
        raise UserError(f"--video {arguments.video}: a folder; name a file")
    for name in ("video", "dataset"):
        if arguments.view and getattr(arguments, name) is not None:
            raise UserError(
                f"--view with --{name}: a window shows episodes, and records none; leave out one of the two"
            )
    if arguments.video is not None and arguments.no_video:
        raise UserError("--video with --no-video: leave out one of the two")
    if arguments.video is not None and arguments.video.suffix != ".mp4":
        raise UserError(f"--video {arguments.video}: its name has to end in .mp4")
    if arguments.video is not None and (wrong := next(filter(Path.is_file, arguments.video.parents), None)):
        raise UserError(f"--video {arguments.video}: {wrong} is a file, and no folder")


def main() -> int:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the folder of a run, a checkpoint in it, or a policy's file")
    parser.add_argument("--best", action="store_true", help="the policy of the run's best evaluation")
    parser.add_argument("--episodes", type=int, help="number of episodes (default: as in training)")
    parser.add_argument("--seed", type=int, help="seed of the episodes (default: the seed of the run)")
    sample_help = "sample the actions, or take the greedy ones (default: as in training's evaluations)"
    parser.add_argument("--sample", action=argparse.BooleanOptionalAction, help=sample_help)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:<number> (default: auto)")
    video_help = "default: <run folder>/video/evaluate.mp4; a policy's file: none"
    parser.add_argument("--video", type=Path, help=video_help)
    parser.add_argument("--view", action="store_true", help=f"show the policy live: {window.KEYS}")
    parser.add_argument("--no-video", action="store_true", help="do not film")
    parser.add_argument("--dataset", metavar="ID", help="record a data set, such as cheetah/expert-v0")
    trust.add_option(parser)
    arguments = parser.parse_args()
    path = resolved(arguments.path / BEST if arguments.best else arguments.path)
    try:
        begin_command()
        require_sensible(arguments)
        default = None if policy_bundle.is_bundle(path) else run_policy.run_folder_of(path) / "video" / "evaluate.mp4"
        film = None if arguments.no_video else arguments.video or default
        trusted = trust.given(arguments)
        number, seed, device, sample = arguments.episodes, arguments.seed, arguments.device, arguments.sample
        if arguments.view:
            view(path, number, seed, device, trusted, sample)
        else:
            evaluate(path, number, seed, device, film, trusted, sample, arguments.dataset)
            if arguments.video is not None and not arguments.video.exists():
                raise RunError(f"--video {arguments.video}: it was not written; a line above says why")
    except (UserError, RunError) as error:
        return print_error(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
