"""The agent that a configuration describes, and what acts before it."""

import shutil
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_object, instantiate

from agent.policy import load_policy
from run.env_spec import EnvSpec
from settings.schema import Settings, get_parameters
from utils import UserError


def identity_of(cfg: Settings, spec: EnvSpec) -> dict[str, Any]:
    """Returns the values that a checkpoint and the run that loads it must share."""
    return {"agent": cfg.agent["name"], "_target_": cfg.agent["_target_"], "env": cfg.env, **spec.agent_arguments()}


def build_agent(cfg: Settings, spec: EnvSpec, device: torch.device) -> Any:
    """Builds the agent of a run's settings; raises UserError if it does not suit the environment's shapes."""
    node = {key: value for key, value in cfg.agent.items() if key != "name"}  # which names the run's folder
    agent_class, shapes = get_object(node["_target_"]), spec.agent_arguments()
    require_kind(agent_class, spec, f"env={cfg.env}", f"agent={cfg.agent['name']}")
    if "obs_shape" in shapes and "obs_shape" not in get_parameters(agent_class)[0]:
        raise UserError(f"agent={cfg.agent['name']}: it takes no images {shapes['obs_shape']}; choose agent=drq")
    return instantiate(node, _convert_="all")(**shapes, device=device)


def require_kind(agent: Any, spec: EnvSpec, env: str, named: str) -> None:
    """Raises UserError if only one of agent (an object or its class) and environment has discrete actions."""
    kinds = "continuous", "discrete"
    is_discrete, wants_discrete = spec.num_actions is not None, bool(getattr(agent, "discrete_actions", False))
    if is_discrete != wants_discrete:
        choice = "sac_discrete" if is_discrete else "sac"
        raise UserError(
            f"{env}: its actions are {kinds[is_discrete]}, and {named} is for {kinds[wants_discrete]} ones; choose "
            f"agent={choice}"
        )


def build_seed_policy(
    cfg: Settings, agent: Any, spec: EnvSpec, device: torch.device, copied: Path, resume: bool
) -> Any:
    """Returns what acts for the first `num_seed_steps`: a uniform policy, the agent, or the policy in a file, which is
    copied into the run's folder, where a resumed run reads it."""
    if cfg.seed_policy in ("agent", "uniform"):
        return agent if cfg.seed_policy == "agent" else spec.uniform_policy(cfg.seed)
    if not resume:
        if not Path(cfg.seed_policy).is_file():
            raise UserError(f"seed_policy={cfg.seed_policy}: must be uniform, agent or the file of a saved policy")
        shutil.copyfile(cfg.seed_policy, copied)
    return load_policy(copied, str(device), cfg.seed)
