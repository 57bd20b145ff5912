"""Loads a trained policy: from a checkpoint, its best policy, or an exported policy, to evaluate or export it.

policies/cheetah_run.pt        an exported policy: its networks (see agent.policy)
         cheetah_run.pt.json   where it comes from, and in `settings` the run's whole configuration
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent.policy import load_policy
from run.agents import EnvSpec, build_agent, identity_of
from run.checkpoint import FOLDER, read_checkpoint, read_newest
from run.environments import make_env_factory
from run.evaluation.evaluations import BEST, load_best
from run.execution import resolve_device
from run.resume import load_settings
from settings.schema import Settings, check
from settings.trust import require_trusted
from utils import UserError


@dataclass(frozen=True)
class RunPolicy:
    """A trained agent or policy, and its run's settings."""

    folder: Path  # of the run, or of an exported policy
    path: Path  # the checkpoint, `checkpoints/best`, or the exported policy
    cfg: Settings
    actor: Any  # the agent, or a policy alone; has `act`
    step: int  # environment steps of its training
    evaluation: dict[str, Any] | None = None  # of an exported policy: `step`, `mean` and `std`

    @property
    def make_env(self) -> Any:
        """Builds an environment of the run; its argument is whether the environment will be rendered."""
        return make_env_factory(self.cfg, "evaluation")


def json_of(path: Path) -> Path:
    """Returns the path of the JSON file beside an exported policy."""
    return path.with_name(f"{path.name}.json")


def run_folder_of(path: Path) -> Path:
    """Returns the run's folder, given its path or a checkpoint's in it; for an exported policy, the parent folder."""
    if path.suffix == ".pt":
        return path.parent
    is_checkpoint = path.parent.name == FOLDER and not (path / "config.yaml").exists()
    return path.parents[1] if is_checkpoint else path


def load_run_policy(path: Path, device: str = "auto", trusted: Sequence[str] = ()) -> RunPolicy:
    """Loads what a run has learned; imports and runs no untrusted code.

    Args:
        path: the folder of a run (its newest intact checkpoint is used) or a checkpoint in it; `checkpoints/best` is
            the policy of the best evaluation. Or an exported policy.
        trusted: the user's packages, whose classes the run's configuration may name.
    """
    path = path.resolve()
    folder, torch_device = run_folder_of(path), resolve_device(device)
    if path.suffix == ".pt":
        if not json_of(path).exists():
            raise UserError(f"{path}: no policy with a .json beside it; `export.py <run> --format policy` writes both")
        about = json.loads(json_of(path).read_text(encoding="utf-8"))
        require_trusted(about["settings"], trusted, str(json_of(path)))
        policy = load_policy(path, str(torch_device), trusted=trusted)
        return RunPolicy(folder, path, check(about["settings"]), policy, about["step"], about["return"])
    cfg = load_settings(folder, trusted)
    if path == folder / BEST:
        policy, step, mean_return = load_best(folder, str(torch_device), trusted)
        print(f"The best evaluation was that of step {step}: {mean_return:.4f}")
        return RunPolicy(folder, path, cfg, policy, step)
    env: gym.Env = make_env_factory(cfg, "evaluation")(False)
    spec = EnvSpec.of(env)
    env.close()
    identity = identity_of(cfg, spec)
    saved = read_newest(folder, "agent", identity=identity) if path == folder else read_checkpoint(path, "agent")
    saved.require_identity(identity)
    actor = build_agent(cfg, spec, torch_device)
    actor.load_state_dict(saved.states["agent"])
    actor.train(False)  # so that it acts as in evaluations; in training it may act with other weights
    return RunPolicy(folder, saved.path, cfg, actor, saved.manifest["step"])
