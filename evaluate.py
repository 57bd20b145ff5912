"""Evaluates a checkpoint: `python evaluate.py exp/<day>/<run>`, or `.../checkpoints/step_<number>` for an older one.

Prints the return of each episode and films the first. Without `--seed` these are the episodes that training's own
evaluation at that step played. Needs neither the replay buffer nor the training machine's GPU.
"""

import argparse
import dataclasses
import sys
from functools import partial
from pathlib import Path

import numpy as np

import checkpoint
import resume
import video
from build import build_agent, identity_of, shapes_of
from checkpoint import BrokenError, Checkpoint
from evaluator import Evaluator
from train import NO_OPENGL
from utils import UserError, resolve_device


def evaluate(
    path: Path, num_episodes: int | None = None, seed: int | None = None, device: str = "auto", film: Path | None = None
) -> list[float]:
    """Plays episodes with the greedy policy of a checkpoint.

    Args:
        path: a run's folder (its newest whole checkpoint is taken) or a checkpoint in it.
        num_episodes: None for the run's own number.
        seed: of the episodes; None for the run's own.
        device: as the key of that name.
        film: where the first episode's video goes; None films nothing.

    Returns:
        The episodes' returns.

    Raises:
        UserError: if there is no whole checkpoint, or it does not fit the run's configuration.
    """
    path = path.resolve()
    if path.name.startswith("step_"):
        run_folder = path.parents[1]
        try:
            found = Checkpoint(path)
            found.verify("agent")
        except BrokenError as error:
            raise UserError(f"{path}: {error}") from None
    else:
        run_folder = path
        found, _ = checkpoint.newest_whole(run_folder, "agent")
    cfg = resume.settings_of(run_folder, [])
    has_opengl = video.choose_opengl(film is not None)
    import envs  # not before: dm_control reads the choice when it is imported

    if film is not None and not has_opengl and envs.needs_opengl(cfg.env):
        print(NO_OPENGL)
        film = None
    make_env = partial(envs.make_env, cfg.env, cfg.seed, cfg.action_repeat)
    probe = make_env(False)
    shapes = shapes_of(probe.observation_space, probe.action_space)
    probe.close()
    found.require(identity_of(cfg, shapes))
    agent = build_agent(cfg, shapes, resolve_device(device))
    agent.load_state_dict(found.load("agent"))
    evaluator = Evaluator(
        make_env,
        cfg.seed if seed is None else seed,
        num_episodes or cfg.num_eval_episodes,
        (lambda step: film) if film is not None else None,
        cfg.action_repeat,
    )
    try:
        returns, lengths = dataclasses.astuple(evaluator.evaluate(agent, found.step))
    finally:
        evaluator.close()
    for episode, (value, length) in enumerate(zip(returns, lengths, strict=True), start=1):
        print(f"episode {episode}: return {value:.4f}, {length} steps")
    print(f"{found.path}: mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    if film is not None and film.exists():
        print(film)
    return returns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="a run's folder, or a checkpoint in it")
    parser.add_argument("--episodes", type=int, default=None, help="default: as many as in training")
    parser.add_argument("--seed", type=int, default=None, help="of the episodes; default: training's own")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--video", type=Path, default=None, help="default: <run folder>/video/evaluate.mp4")
    parser.add_argument("--no-video", action="store_true")
    arguments = parser.parse_args()
    run_folder = arguments.path.parents[1] if arguments.path.name.startswith("step_") else arguments.path
    film = None if arguments.no_video else arguments.video or run_folder / "video" / "evaluate.mp4"
    try:
        if arguments.episodes is not None and arguments.episodes < 1:
            raise UserError(f"--episodes {arguments.episodes}: 1 or more")
        evaluate(arguments.path, arguments.episodes, arguments.seed, arguments.device, film)
    except UserError as error:
        print(f"evaluate.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
