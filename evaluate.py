"""Evaluates a checkpoint: `python evaluate.py exp/<day>/<run>`, or `.../checkpoints/step_<number>` for an older one.

`--best` plays the policy that was evaluated best during training.

Prints the return of each episode and films the first one. Without `--seed`, it plays the same episodes as the
evaluation during training at that step. It needs neither the replay buffer nor a GPU.
"""

import argparse
import dataclasses
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from run import best, checkpoint, environments, machine, resume, trust
from run.build import Shapes, build_agent, identity_of, require_fit, shapes_of
from run.checkpoint import BrokenError, Checkpoint
from run.evaluator import Evaluator
from settings.check import Settings
from utils import EnvError, RunError, UserError, one_line, refuse_links


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
        path: the folder of a run (its newest whole checkpoint is used) or a checkpoint in it; `checkpoints/best` is
            the policy that was evaluated best.
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
    run_folder = _run_folder(path)
    refuse_links(run_folder)
    if not checkpoint.newest_first(run_folder):
        raise UserError(f"{run_folder}: there is no checkpoint in it")
    cfg = resume.settings_of(run_folder, [], trusted=trusted)
    env_module, films = environments.import_envs(cfg, film is not None)
    film = film if films else None
    make_env = environments.maker(cfg, env_module)
    probe = make_env(False)
    shapes = shapes_of(probe.observation_space, probe.action_space)
    probe.close()
    load = _best if path.name == "best" else _agent
    actor, step, where = load(path, cfg, shapes, machine.resolve_device(device))
    evaluator = Evaluator(
        make_env,
        cfg.seed if seed is None else seed,
        num_episodes or cfg.num_eval_episodes,
        (lambda step: film) if film is not None else None,
        cfg.action_repeat,
    )
    try:
        returns, lengths = dataclasses.astuple(evaluator.evaluate(actor, step))
    finally:
        evaluator.close()
    for episode, (value, length) in enumerate(zip(returns, lengths, strict=True), start=1):
        print(f"episode {episode}: return {value:.4f}, {length} steps")
    print(f"{where}: mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    if film is not None and film.exists():
        print(film)
    return returns


def _run_folder(path: Path) -> Path:
    """Of what may be a checkpoint in it."""
    return path.parents[1] if path.parent.name == checkpoint.FOLDER else path


def _agent(path: Path, cfg: Settings, shapes: Shapes, device: torch.device) -> tuple[Any, int, Path]:
    """The agent of a checkpoint, or of a run's newest whole one, its step, and that checkpoint."""
    if path != _run_folder(path):
        try:
            found = Checkpoint(path)
            found.verify("agent")
        except BrokenError as error:
            raise UserError(f"{path}: {error}") from None
        state = found.load("agent")
    else:
        found, state = _newest(path)
    found.require(identity_of(cfg, shapes))
    agent = build_agent(cfg, shapes, device)
    try:
        agent.load_state_dict(state)
    except Exception as error:  # whatever a state says that is not this agent's
        raise UserError(f"{found.path}: does not fit this run ({type(error).__name__}: {one_line(error)})") from error
    return agent, found.step, found.path


def _newest(run_folder: Path) -> tuple[Checkpoint, Any]:
    """A run's newest whole checkpoint and the agent's state in it; a training at work may take it away meanwhile."""
    while True:
        found, _ = checkpoint.newest_whole(run_folder, "agent")
        try:
            return found, found.load("agent")
        except UserError:
            if found.path.exists():
                raise


def _best(path: Path, cfg: Settings, shapes: Shapes, device: torch.device) -> tuple[Any, int, Path]:
    """The policy that was evaluated best, its step, and where it is kept."""
    policy, step, mean_return = best.load(_run_folder(path), str(device))
    require_fit(policy, shapes, f"{path}", cfg.env)
    print(f"The best evaluation was that of step {step}: {mean_return:.4f}")
    return policy, step, path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the folder of a run, or a checkpoint in it")
    parser.add_argument("--best", action="store_true", help="the policy of the run's best evaluation")
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
    path = arguments.path / best.BEST if arguments.best else arguments.path
    film = None if arguments.no_video else arguments.video or _run_folder(path) / "video" / "evaluate.mp4"
    try:
        if arguments.episodes is not None and arguments.episodes < 1:
            raise UserError(f"--episodes {arguments.episodes}: 1 or more")
        if arguments.seed is not None and arguments.seed < 0:
            raise UserError(f"--seed {arguments.seed}: 0 or more")
        trusted = [name for given in arguments.trust for name in trust.names(given)]
        evaluate(path, arguments.episodes, arguments.seed, arguments.device, film, trusted)
    except (UserError, RunError) as error:
        print(f"evaluate.py: {error}", file=sys.stderr)
        if isinstance(error, EnvError) and error.__cause__:
            traceback.print_exception(error.__cause__)  # its author needs it
        return 2 if isinstance(error, UserError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
