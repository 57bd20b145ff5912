"""The agent that a configuration describes, the shapes that it is built for, and what acts before it."""

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import torch
from hydra.utils import get_object, instantiate

from agent.policy import UniformPolicy, load_policy
from settings.obs_spec import ObsSpec
from settings.schema import Settings
from utils import UserError


class EnvSpec(NamedTuple):
    """The shapes of an environment's observations and actions."""

    obs: ObsSpec
    action_shape: tuple[int, ...]  # (action_dim,), each component in [-1, 1]; or (1,), an integer below num_actions
    num_actions: int | None = None  # 2 or more discrete ones; None if actions are continuous

    @classmethod
    def of(cls, env: Any) -> "EnvSpec":
        """Returns the shapes of an environment, or of each environment of a vector environment."""
        prefix = "single_" if hasattr(env, "single_action_space") else ""
        obs_space, actions = (getattr(env, f"{prefix}{name}_space") for name in ("observation", "action"))
        obs = getattr(obs_space, "obs_spec", None) or ObsSpec.of_shape(obs_space.shape)
        return cls(obs, actions.shape, int(actions.nvec[0]) if isinstance(actions, gym.spaces.MultiDiscrete) else None)

    @property
    def action_dim(self) -> int:
        """The width of a continuous action, or the number of discrete actions."""
        return self.num_actions or self.action_shape[0]

    @property
    def action_range(self) -> tuple[float, float]:
        """The lowest and the highest component of an action."""
        return (0.0, self.num_actions - 1.0) if self.num_actions else (-1.0, 1.0)

    def agent_arguments(self) -> dict[str, Any]:
        """Returns the arguments of an agent's constructor that depend on the environment's shapes."""
        obs = self.obs
        parts: dict[str, Any] = {"obs_shape": list(obs.image)} if obs.image else {}
        parts |= {"vector_dim": obs.vector_dim} if obs.is_mixed else {}
        parts |= {"obs_groups": list(obs.groups)} if obs.groups else {}
        obs_dim = obs.image_bytes + obs.vector_dim
        return {"obs_dim": obs_dim, **parts, "action_dim": self.action_dim, "action_range": [*self.action_range]}

    def uniform_policy(self, seed: int) -> UniformPolicy:
        return UniformPolicy(self.action_dim, self.action_range, seed, self.num_actions is not None)


def identity_of(cfg: Settings, spec: EnvSpec) -> dict[str, Any]:
    """Returns the values that a checkpoint and the run that loads it must share."""
    return {"agent": cfg.agent["name"], "_target_": cfg.agent["_target_"], "env": cfg.env, **spec.agent_arguments()}


def build_agent(cfg: Settings, spec: EnvSpec, device: torch.device) -> Any:
    """Builds the agent of a run's settings; raises UserError if only one of it and its task has discrete actions."""
    node = {key: value for key, value in cfg.agent.items() if key != "name"}  # which names the run's folder
    is_discrete = spec.num_actions is not None
    if is_discrete != bool(getattr(get_object(node["_target_"]), "discrete_actions", False)):
        kind, choice = ("discrete", "sac_discrete") if is_discrete else ("continuous", "sac")
        raise UserError(f"env={cfg.env}: its actions are {kind}; choose agent={choice}")
    return instantiate(node, _convert_="all")(**spec.agent_arguments(), device=device)


def build_seed_policy(cfg: Settings, agent: Any, spec: EnvSpec, device: torch.device) -> Any:
    """Returns what acts for the first `num_seed_steps`: a uniform policy, the agent, or the policy in a file."""
    if cfg.seed_policy in ("agent", "uniform"):
        return agent if cfg.seed_policy == "agent" else spec.uniform_policy(cfg.seed)
    if not Path(cfg.seed_policy).is_file():
        raise UserError(f"seed_policy={cfg.seed_policy}: must be uniform, agent or the file of a saved policy")
    return load_policy(Path(cfg.seed_policy), str(device), cfg.seed)
