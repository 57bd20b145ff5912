"""What a run has learned, to be played or taken elsewhere: its newest agent, an older one, its best policy, or one that
was taken out of its folder.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

from agent.policy_file import load_policy
from run import best, checkpoint, machine, packed, resume
from run.build import build_agent, identity_of, require_fit
from run.checkpoint import BrokenError, Checkpoint
from run.environments import env_maker, import_envs
from run.shapes import Shapes, shapes_of
from settings.check import Settings
from utils import UserError, one_line, refuse_links


@dataclass(frozen=True)
class Trained:
    """Who acts, and what it was trained in.

    Attributes:
        folder: the run's, or the one that a policy's file is in.
        path: the checkpoint, or `checkpoints/best`, or the file.
        cfg: the run's settings.
        actor: the agent, or its policy alone; has `act`.
        step: environment steps until then.
        make_env: builds the run's environment, given whether it will render.
        renders: whether it can.
        evaluation: the one that a policy's file tells of (see run/packed.py); a run's are in its eval.csv.
    """

    folder: Path
    path: Path
    cfg: Settings
    actor: Any
    step: int
    make_env: Callable[[bool], gym.Env]
    renders: bool
    evaluation: dict[str, float | None] | None = None


def run_folder_of(path: Path) -> Path:
    """Of what may be a checkpoint in it, or a policy's file."""
    if packed.is_file(path):
        return path.parent
    is_run = (path / "config.yaml").exists()
    return path.parents[1] if path.parent.name == checkpoint.FOLDER and not is_run else path


def load(path: Path, device: str = "auto", trusted: Sequence[str] = (), renders: bool = False) -> Trained:
    """Reads what a run has learned; runs no code but this project's and what is trusted.

    Args:
        path: the folder of a run (its newest whole checkpoint is used) or a checkpoint in it; `checkpoints/best` is
            the policy that was evaluated best. Or the file of a policy (see run/packed.py).
        device: as the key of that name.
        trusted: packages whose classes the run's configuration may name beside this project's.
        renders: whether an environment of it will be rendered.

    Raises:
        UserError: if there is no whole checkpoint, or it does not fit the run's configuration.
    """
    path = path.resolve()
    folder = run_folder_of(path)
    file = packed.read(path, trusted) if packed.is_file(path) else None
    cfg = file.cfg if file else _settings_of(folder, trusted)
    _, can_render = import_envs(cfg, renders)
    make_env = env_maker(cfg, "evaluation")
    probe = make_env(False)
    shapes = shapes_of(probe.observation_space, probe.action_space)
    probe.close()
    on = machine.resolve_device(device)
    if file:
        policy = load_policy(path, str(on))
        require_fit(policy, shapes, f"{path}", cfg.env)
        return Trained(folder, path, cfg, policy, file.step, make_env, can_render, file.evaluation)
    find = _best if path == folder / best.BEST else _agent
    actor, step, where = find(path, cfg, shapes, on)
    return Trained(folder, where, cfg, actor, step, make_env, can_render)


def _settings_of(folder: Path, trusted: Sequence[str]) -> Settings:
    refuse_links(folder)
    if not checkpoint.newest_first(folder):
        raise UserError(f"{folder}: there is no checkpoint in it")
    return resume.settings_of(folder, [], trusted=trusted)


def _agent(path: Path, cfg: Settings, shapes: Shapes, device: torch.device) -> tuple[Any, int, Path]:
    """The agent of a checkpoint, or of a run's newest whole one, its step, and that checkpoint."""
    if path != run_folder_of(path):
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
    agent.train(False)  # so that it acts as it was evaluated, which in training it need not
    return agent, found.step, found.path


def _newest(folder: Path) -> tuple[Checkpoint, Any]:
    """A run's newest whole checkpoint and the agent's state in it; a training at work may take it away meanwhile."""
    while True:
        found, _ = checkpoint.newest_whole(folder, "agent")
        try:
            return found, found.load("agent")
        except UserError:
            if found.path.exists():
                raise


def _best(path: Path, cfg: Settings, shapes: Shapes, device: torch.device) -> tuple[Any, int, Path]:
    """The policy that was evaluated best, its step, and where it is kept."""
    policy, step, mean_return = best.load(run_folder_of(path), str(device))
    require_fit(policy, shapes, f"{path}", cfg.env)
    print(f"The best evaluation was that of step {step}: {mean_return:.4f}")
    return policy, step, path
