"""Restores a run from its checkpoint, and saves what no single object holds: episodes and global generators."""

import random
from typing import Any

import numpy as np
import torch

from run.checkpoint import BUFFER, PRELOADED
from run.folder import FINISHED


class EnvEpisodes:
    """Saves the episode of every training environment: its number and its actions, which are replayed to restore it.

    Attributes:
        envs: the training environments.
        obs: (num_envs, *obs_shape), the newest observation of every environment; set by `load_state_dict`.
    """

    def __init__(self, envs: Any):
        self.envs = envs
        self.obs: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": list(self.envs.call("state_dict"))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        every_env = np.ones(self.envs.num_envs, bool)
        self.obs = self.envs.reset(options={"reset_mask": every_env, "states": state["episodes"]})[0]


class GlobalGenerators:
    """Saves the global random generators of Python, NumPy, torch and, if the run uses one, its GPU."""

    def __init__(self, device: torch.device):
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        kind, keys, *rest = np.random.get_state(legacy=True)
        numpy_state = (kind, np.asarray(keys).tolist(), *rest)
        state = {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state()}
        return state | ({"cuda": torch.cuda.get_rng_state(self._device)} if self._device.type == "cuda" else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["torch"])
        if self._device.type == "cuda" and "cuda" in state:  # a run may change its device
            torch.cuda.set_rng_state(state["cuda"], self._device)


def restore(run: Any) -> None:
    """Loads a Workspace's newest intact checkpoint. Nothing in the folder changes before the last part is restored."""
    cfg, progress, buffer = run.cfg, run.progress, run.replay_buffer
    saved = run.checkpoints.load_newest("agent", "run", "replay_buffer")
    run.agent.load_state_dict(saved.states["agent"])
    if counters := saved.states["run"].get("replay_buffer"):
        has_rows = bool(saved.manifest[BUFFER]) or not counters["num_added"]
        saved.read_rows(BUFFER, buffer)
        buffer.load_state_dict(counters if has_rows else counters | {"num_added": 0})
    elif has_rows := "replay_buffer" in saved.states:  # a user's own
        buffer.load_state_dict(saved.states["replay_buffer"])
    num_preloaded = 0
    if cfg.preload_share and saved.manifest[PRELOADED]:
        run.data.restore(saved)
    elif cfg.preload_share or not has_rows:
        num_preloaded = run.data.fill()
    for name, part in run.stateful.items():
        part.load_state_dict(saved.states["run"][name])
    if getattr(run.envs, "cannot_restore", False):  # the saved episodes cannot be continued
        progress.begin_episodes(np.ones(cfg.num_envs, bool))
        run.stateful["n_step"].forget()
    (run.work_dir / FINISHED).unlink(missing_ok=True)
    if not has_rows:
        num_new = max(cfg.num_seed_steps // cfg.action_repeat, progress.updates_from)
        progress.updates_from = min(num_new + num_preloaded, buffer.capacity)
        print(f"There is no saved replay buffer: no updates before {num_new} new transitions")
    print(f"Continuing from {saved.path}", flush=True)
