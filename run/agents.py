"""The agent that a configuration describes, and whether it works."""

import copy
import traceback
from typing import Any

import torch
from hydra.utils import get_object, instantiate

from run.env_spec import EnvSpec
from run.memory import WeightLimit, limit_by_memory
from settings.schema import Settings
from settings.signatures import parameters
from utils import UserError, one_line


def identity_of(cfg: Settings, spec: EnvSpec) -> dict[str, Any]:
    """Returns the values that a checkpoint and the run that loads it must share."""
    return {"agent": cfg.agent["name"], "_target_": cfg.agent["_target_"], "env": cfg.env, **spec.agent_arguments()}


def build_agent(cfg: Settings, spec: EnvSpec, device: torch.device, limit: WeightLimit | None = None) -> Any:
    """Builds the agent of a run's settings; arguments and errors as for `agent_of`."""
    require_kind(get_object(cfg.agent["_target_"]), spec, f"env={cfg.env}", f"agent={cfg.agent['name']}")
    node = {key: value for key, value in cfg.agent.items() if key != "name"}  # which names the run's folder
    return agent_of(node, spec.agent_arguments(), device, limit)


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


def agent_of(
    node: dict[str, Any], shapes: dict[str, Any], device: torch.device, limit: WeightLimit | None = None
) -> Any:
    """Builds the agent that a checked node describes.

    Args:
        shapes: the arguments that come from the environment (EnvSpec.agent_arguments).
        limit: limits the number of its weights; None limits it by the available memory.

    Raises:
        UserError: if its networks do not fit into the memory, or it does not take images.
    """
    for name, what in (("obs_shape", "images"), ("vector_dim", "images with vectors"), ("obs_groups", "in groups")):
        if name in shapes and name not in parameters(get_object(node["_target_"])):
            raise UserError(
                f"agent._target_={node['_target_']}: the observations are {what} {shapes[name]}, and its constructor "
                f"takes no {name}; choose agent=drq"
            )
    try:
        with limit or limit_by_memory(device):
            return instantiate(node, _convert_="all")(**shapes, device=device)
    except (MemoryError, RuntimeError) as error:
        reason = one_line(error)
        if isinstance(error, RuntimeError) and not any(word in reason for word in ("alloc", "memory", "overflow")):
            raise
        raise UserError(f"agent: its networks do not fit into the memory here ({reason[:100]})") from error


def build_acting_agent(cfg: Settings, spec: EnvSpec, device: torch.device, limit: WeightLimit | None = None) -> Any:
    """Builds an agent like `build_agent`, and lets it act once to find parts that do not fit together.

    Any other exception becomes a UserError that names the line of code that raised it.
    """
    verb = "be built"
    try:
        agent = build_agent(cfg, spec, device, limit)
        verb = "act"
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            state = copy.deepcopy(agent.state_dict())
            if state is None:  # an agent that cannot be resumed
                copy.deepcopy(agent).act(spec.zero_obs()[None])
            else:
                agent.act(spec.zero_obs()[None])
                verb = "load its own state_dict"
                agent.load_state_dict(state)
        return agent
    except UserError:
        raise
    except Exception as error:  # a user's class can raise anything
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__} in {place.filename}:{place.lineno}: {one_line(error)}"
        raise UserError(f"agent._target_={cfg.agent['_target_']}: it cannot {verb} ({reason})") from error
