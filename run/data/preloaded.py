"""The data that a run begins with: in its replay buffer, or, where `preload_share` asks, in a buffer of their own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from replay import device as device_buffer
from replay.mixed import MixedBatches
from replay.n_step import NStep
from replay.on_disk import Segment
from replay_buffer import ReplayBuffer, nbytes, require_memory
from run.data import sources
from run.env_spec import EnvSpec
from settings.schema import Settings
from utils import UserError

STREAM = 2  # of the seeds of generators; 0 and 1 are in envs/episodes.py


def require(cfg: Settings, spec: EnvSpec, own_actions: Any) -> list[sources.Source]:
    """What `preload` names, opened; nothing is read of it yet but what it is.

    Args:
        spec: of the run's environment.
        own_actions: the environment's (see dmc2gym.wrappers).

    Raises:
        UserError: for what is not there or does not fit, and for keys that do not go together.
    """
    for key, value in (("preload_share", cfg.preload_share), ("offline_updates", cfg.offline_updates)):
        if value and not cfg.preload:
            raise UserError(f"{key}={value}: nothing is preloaded; preload=<data set, or a run's folder> names it")
    if cfg.offline_updates > cfg.num_train_steps:
        raise UserError(
            f"offline_updates={cfg.offline_updates}: each counts as a step, and num_train_steps={cfg.num_train_steps}"
        )
    if cfg.preload and spec.is_image:
        raise UserError(f"preload={cfg.preload}: vectors can be preloaded, and this run learns from images")
    found = sources.find(cfg, spec, own_actions)
    total = sum(source.num_transitions for source in found)
    capacity, share = cfg.replay_buffer.get("capacity"), cfg.preload_share
    if found and share:
        require_memory(spec.obs_shape, spec.action_shape, total, f"preload: {total} transitions")
        batch_size = cfg.agent.get("batch_size", 0)
        drawn = batch_size if cfg.offline_updates else round(share * batch_size)
        if not _with_replacement(cfg) and total < drawn:
            raise UserError(f"preload: {total} transitions, of which a batch without replacement takes {drawn}")
    elif found and isinstance(capacity, int) and total > capacity:
        raise UserError(
            f"replay_buffer_capacity={capacity}: {total} transitions are preloaded; raise it, or keep them apart from "
            "the run's own with preload_share=0.5"
        )
    return found


def _with_replacement(cfg: Settings) -> bool:
    return bool(cfg.replay_buffer.get("with_replacement", True))


class Preloaded:
    """What is preloaded, and what updates draw from.

    Args:
        cfg: the run's settings.
        spec, own_actions: as for `require`.
        device: where batches go.
        collected: the replay buffer that the run fills.
        make_n_step: makes what makes the rows.

    Attributes:
        buffer: the preloaded transitions, where a share of every batch comes from them; None where there are none, or
            they lie in the replay buffer among the others.
        batches: what updates draw from.
        offline: what those before the first environment step draw from.
    """

    def __init__(
        self,
        cfg: Settings,
        spec: EnvSpec,
        device: torch.device,
        collected: Any,
        own_actions: Any,
        make_n_step: Callable[[], NStep],
    ):
        self._cfg = cfg
        self._find = partial(require, cfg, spec, own_actions)
        self._sizes = spec.obs_shape, spec.action_shape
        self._device = device
        self._collected = collected
        self._make_n_step = make_n_step
        self.buffer: ReplayBuffer | None = None
        self.batches = self.offline = collected

    def fill(self, agent: Any = None) -> int:
        """Reads what `preload` names.

        Args:
            agent: is shown every transition; None where it has seen them before.

        Returns:
            How many lie in the replay buffer.

        Raises:
            UserError: for what cannot be read.
        """
        found = self._find()
        if not found:
            return 0
        if self._cfg.preload_share:
            self._use(sum(source.num_transitions for source in found))
        into = self._collected if self.buffer is None else self.buffer
        for source in found:
            print(source.feed(self._make_n_step(), agent.observe if agent is not None else None, into.add), flush=True)
        return into.num_added if self.buffer is None else 0

    def restore(self, segments: Sequence[Segment], read: Callable[[Any, int], None]) -> None:
        """Takes the rows of a checkpoint, whatever has become of what they once came from.

        Args:
            segments: of the rows.
            read: fills a buffer with so many of them.
        """
        read(self._use(segments[-1].stop), segments[-1].stop)

    def _use(self, capacity: int) -> ReplayBuffer:
        with_replacement = _with_replacement(self._cfg)
        storage = device_buffer.choose_storage(
            "auto", self._device, with_replacement, capacity, nbytes(*self._sizes, capacity)
        )
        seed = int(np.random.SeedSequence([self._cfg.seed, STREAM]).generate_state(1)[0])
        kind = device_buffer.STORAGES[storage]
        self.buffer = self.offline = kind(*self._sizes, capacity, self._device, seed, with_replacement)
        self.batches = MixedBatches(self._collected, self.buffer, self._cfg.preload_share)
        return self.buffer

    def state_dict(self) -> dict[str, Any]:
        """The count and the generator of its own buffer, if there is one."""
        return {} if self.buffer is None else self.buffer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """After `restore` or `fill`."""
        if self.buffer is not None:
            self.buffer.load_state_dict(state)
