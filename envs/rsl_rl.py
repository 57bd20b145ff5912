"""Environments with rsl_rl's interface (mjlab, Isaac Lab); imports nothing of rsl_rl.

docs/ENVIRONMENTS.md has an example.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

ACTORS_GROUPS = ("actor", "policy")  # possible names of the actor's group of observations


class RslRlEnv(VectorEnv):
    """Wraps an environment with rsl_rl's interface as a vector environment, for envs/simulator.py.

    If `auto_reset` can be switched off, as in mjlab, each episode's last observation is exact. An environment that
    resets itself can return it in `extras["final_obs"]`, by group; otherwise a time-out's row bootstraps from the
    observation before the action (see Simulator). Ended episodes not in `extras["time_outs"]` have terminated.

    Args:
        env: has `num_envs`, `num_actions`, `device`, `get_observations()`, `reset()` and `step(actions)`, and
            perhaps `seed`, `close`, `episode_length_buf` and `max_episode_length`.
        groups: the observation groups to use; None uses the actor's alone.
        action_bound: actions are in [-action_bound, action_bound].
    """

    def __init__(self, env: Any, groups: Sequence[str] | None = None, action_bound: float = 1.0):
        self.env, self.num_envs = env, env.num_envs
        first = env.get_observations()
        self._groups = list(groups or [name for name in ACTORS_GROUPS if name in set(first.keys())][:1])
        if not self._groups:
            raise ValueError(f"groups has to name some of {', '.join(first.keys())}, as none is called policy")
        by_group: dict[str, gym.Space[Any]]
        by_group = {name: gym.spaces.Box(-np.inf, np.inf, tuple(first[name].shape[1:])) for name in self._groups}
        self.single_observation_space = gym.spaces.Dict(by_group)
        self.single_action_space = gym.spaces.Box(-action_bound, action_bound, (env.num_actions,), np.float32)
        cfg: Any = getattr(getattr(env, "unwrapped", None), "cfg", None)
        by_hand = hasattr(cfg, "auto_reset")
        if by_hand:
            cfg.auto_reset = False
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED if by_hand else AutoresetMode.SAME_STEP}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets all worlds, or only those of `options["reset_mask"]`."""
        if options and "reset_mask" in options:
            worlds = torch.as_tensor(np.flatnonzero(options["reset_mask"]), device=self.env.device)
            return self._choose_groups(self.env.unwrapped.reset(env_ids=worlds)[0]), {}
        if seed is not None and hasattr(self.env, "seed"):
            self.env.seed(seed)
        return self._choose_groups(self.env.reset()[0]), {}

    @torch.no_grad()
    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, rewards, dones, extras = self.env.step(actions)
        done = dones.bool()
        timed_out = extras.get("time_outs", torch.zeros_like(done)).bool() & done
        final = {"final_obs": self._choose_groups(extras["final_obs"])} if "final_obs" in extras else {}
        return self._choose_groups(obs), rewards, done & ~timed_out, timed_out, final

    def start_late(self, rng: np.random.Generator, max_steps: int) -> None:
        """Lets every world's episode begin at a random step below this one, and below a time-out's."""
        limit = min(max_steps, int(self.env.max_episode_length))
        begun = torch.as_tensor(rng.integers(0, limit, self.num_envs))
        self.env.episode_length_buf = begun.to(self.env.episode_length_buf)

    def _choose_groups(self, obs: Any) -> dict[str, Any]:
        return {name: obs[name] for name in self._groups}

    def close_extras(self, **_: Any) -> None:
        if hasattr(self.env, "close"):
            self.env.close()
