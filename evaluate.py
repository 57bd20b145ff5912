"""Evaluates a checkpoint: `python evaluate.py exp/<day>/<run>`, or `.../checkpoints/step_<number>` for an older one.

Prints the return of each episode and films the first one. Without `--seed`, it plays the same episodes as the
evaluation during training at that step. It needs neither the replay buffer nor a GPU.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from run import checkpoint, machine, resume, trust
from run.build import build_agent, identity_of, shapes_of
from run.checkpoint import BrokenError, Checkpoint
from run.evaluator import Evaluator
from utils import UserError, one_line, refuse_links


def evaluate(
    path: Path,
    num_episodes: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    film: Path | None = None,
    trusted: Sequence[str] = (),
) -> list[float]:
    """Plays episodes with the greedy policy of a checkpoint.

    Args:
        path: the folder of a run (its newest whole checkpoint is used) or a checkpoint in it.
        num_episodes: None for as many as in training.
        seed: seed of the episodes; None for the seed of the run.
        device: as the key of that name.
        film: where to write the video of the first episode; None films nothing.
        trusted: packages whose classes the run's configuration may name beside this project's.

    Returns:
        The episodes' returns.

    Raises:
        UserError: if there is no whole checkpoint, or it does not fit the run's configuration.
    """
    path = path.resolve()
    run_folder = path.parents[1] if path.name.startswith("step_") else path
    refuse_links(run_folder)
    if path != run_folder:
        try:
            found = Checkpoint(path)
            found.verify("agent")
        except BrokenError as error:
            raise UserError(f"{path}: {error}") from None
        state = found.load("agent")
    else:
        found, state = _newest(run_folder)
    cfg = resume.settings_of(run_folder, [], trusted=trusted)
    env_module, has_opengl = machine.import_envs(machine.wants_opengl(cfg.env, film is not None))
    if film is not None and not machine.can_film(has_opengl or not env_module.needs_opengl(cfg.env)):
        film = None
    make_env = partial(env_module.make_env, cfg.env, cfg.seed, cfg.action_repeat)
    probe = make_env(False)
    shapes = shapes_of(probe.observation_space, probe.action_space)
    probe.close()
    found.require(identity_of(cfg, shapes))
    agent = build_agent(cfg, shapes, machine.resolve_device(device))
    try:
        agent.load_state_dict(state)
    except Exception as error:  # whatever a state says that is not this agent's
        raise UserError(f"{found.path}: does not fit this run ({type(error).__name__}: {one_line(error)})") from error
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


def _newest(run_folder: Path) -> tuple[Checkpoint, Any]:
    """A run's newest whole checkpoint and the agent's state in it; a training at work may take it away meanwhile."""
    while True:
        found, _ = checkpoint.newest_whole(run_folder, "agent")
        try:
            return found, found.load("agent")
        except UserError:
            if found.path.exists():
                raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the folder of a run, or a checkpoint in it")
    parser.add_argument("--episodes", type=int, default=None, help="number of episodes (default: as in training)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the episodes (default: the seed of the run)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:<number> (default: auto)")
    parser.add_argument("--video", type=Path, default=None, help="default: <run folder>/video/evaluate.mp4")
    parser.add_argument("--no-video", action="store_true", help="do not film")
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="a package of your own whose classes the run may name; repeat it for several, or separate them by commas",
    )
    arguments = parser.parse_args()
    run_folder = arguments.path.parents[1] if arguments.path.name.startswith("step_") else arguments.path
    film = None if arguments.no_video else arguments.video or run_folder / "video" / "evaluate.mp4"
    try:
        if arguments.episodes is not None and arguments.episodes < 1:
            raise UserError(f"--episodes {arguments.episodes}: 1 or more")
        if arguments.seed is not None and arguments.seed < 0:
            raise UserError(f"--seed {arguments.seed}: 0 or more")
        trusted = [name for given in arguments.trust for name in trust.names(given)]
        evaluate(arguments.path, arguments.episodes, arguments.seed, arguments.device, film, trusted)
    except UserError as error:
        print(f"evaluate.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
