"""Loads a trained policy: from a checkpoint, its best policy, or an exported policy, to evaluate or export it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent.policy_file import load_policy
from run import machine
from run.agents import build_agent, identity_of
from run.best import BEST, load_best
from run.checkpoint import FOLDER, list_checkpoints, read_checkpoint, read_newest
from run.env_spec import EnvSpec
from run.environments import can_render, make_env_factory
from run.saving import best, checkpoint, policy_bundle, resume
from run.saving.checkpoint import BrokenError, Checkpoint
from settings.schema import Settings
from utils import UserError, resolved


@dataclass(frozen=True)
class RunPolicy:
    """A trained agent or policy, with its settings and environment.

    Attributes:
        folder: the run's folder, or the folder of an exported policy.
        path: the checkpoint, `checkpoints/best`, or the exported policy.
        actor: the agent, or a policy alone; has `act`.
        step: environment steps of its training.
        make_env: builds an environment of the run; its argument is whether the environment will be rendered.
        renders: whether the environment can be rendered.
        evaluation: an exported policy's evaluation (see PolicyBundle); a run's evaluations are in its eval.csv.
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
    """Returns the run's folder, given its path or a checkpoint's in it; for an exported policy, the parent folder.

    Raises:
        UserError: if the path cannot be read.
    """
    if policy_bundle.is_bundle(path):
        return path.parent
    try:
        is_run = (path / "config.yaml").exists()
    except OSError as error:  # no permission, or a name that is too long
        raise UserError(f"{path}: {error.strerror}") from None
    return path.parents[1] if path.parent.name == FOLDER and not is_run else path


def load(path: Path, device: str = "auto", trusted: Sequence[str] = (), renders: bool = False) -> RunPolicy:
    """Loads what a run has learned; imports and runs no untrusted code.

    Args:
        path: the folder of a run (its newest intact checkpoint is used) or a checkpoint in it; `checkpoints/best` is
            the policy of the best evaluation. Or an exported policy (see run/saving/policy_bundle.py).
        trusted: the user's packages, whose classes the run's configuration may name.
        renders: whether an environment will be rendered.

    Raises:
        UserError: if there is no intact checkpoint, or it does not fit the run's configuration.
    """
    path = resolved(path)
    folder = run_folder_of(path)
    bundle = policy_bundle.read(path, trusted) if policy_bundle.is_bundle(path) else None
    cfg = bundle.cfg if bundle else _settings_of(folder, trusted)
    make_env = make_env_factory(cfg, "evaluation")
    env = make_env(False)
    spec = EnvSpec.of(env)
    env.close()
    torch_device = machine.resolve_device(device)
    if bundle:
        policy, step, evaluation = load_policy(path, str(torch_device)), bundle.step, bundle.evaluation
        require_fit(policy, spec, f"{path}", cfg.env)
        return RunPolicy(folder, path, cfg, policy, step, make_env, can_render(cfg), evaluation)
    if path == folder / best.BEST:
        policy, step, mean_return = best.load(folder, str(torch_device))
        require_fit(policy, spec, f"{path}", cfg.env)
        print(f"The best evaluation was that of step {step}: {mean_return:.4f}")
        return RunPolicy(folder, path, cfg, policy, step, make_env, can_render(cfg))
    saved, state = _newest(folder) if path == folder else _checkpoint(path)
    saved.require_identity(identity_of(cfg, spec))
    actor = build_agent(cfg, spec, torch_device, checkpoint.weight_limit(folder))
    try:
        actor.load_state_dict(state)
    except Exception as error:  # a state of another agent can make it raise anything
        raise UserError(f"{saved.path}: does not fit this run ({type(error).__name__}: {one_line(error)})") from error
    actor.train(False)  # so that it acts as in evaluations; in training it may act with other weights
    return RunPolicy(folder, saved.path, cfg, actor, saved.step, make_env, can_render(cfg))


def _settings_of(folder: Path, trusted: Sequence[str]) -> Settings:
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise UserError(
            f"{folder}: {what}; the folder of a run goes here, or without --best a checkpoint in it, or a policy's "
            "file (.pt)"
        )
    if not (folder / "config.yaml").exists():
        raise UserError(f"{folder}: no run in it (a run's folder has a config.yaml)")
    if not list_checkpoints(folder):
        raise UserError(f"{folder}: there is no checkpoint in it")
    return resume.continuation(folder, [], trusted=trusted).cfg
