"""The data that a run begins with: in its replay buffer or, with `preload_share`, in a buffer of its own."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from replay import device as device_buffer
from replay.adding import batch_adder
from replay.mixed import MixedBatches
from replay_buffer import ReplayBuffer, nbytes, require_memory
from run.checkpoint import PRELOADED, Saved
from run.data import sources
from run.data.buffers import build_n_step, draws_with_replacement
from run.data.sources import DataSet, OldRun
from run.env_spec import EnvSpec
from settings.schema import Settings
from utils import UserError

STREAM = 2  # distinguishes this generator's seed from those of envs/episodes.py, which have more numbers


@dataclass(eq=False)
class Preloaded:
    """The preloaded transitions, and what updates draw batches from.

    Attributes:
        device: device of the batches.
        own_actions: the environment's action bounds (see dmc2gym.wrappers).
        buffer: the buffer with the preloaded transitions, if `preload_share` is above 0; otherwise None, and they are
            in the replay buffer.
        batches: source of the updates' batches.
        offline: source of the batches before the first environment step.
    """

    cfg: Settings
    spec: EnvSpec
    device: torch.device
    replay_buffer: Any
    own_actions: Any

    def __post_init__(self) -> None:
        self._shapes = self.spec.obs_shape, self.spec.action_shape
        self.buffer: ReplayBuffer | None = None
        self.batches = self.offline = self.replay_buffer

    def sources(self) -> list[DataSet | OldRun]:
        """Opens the sources that `preload` names, and checks them against the other keys; reads no transitions yet.

        Raises:
            UserError: if a source is missing or does not fit, or keys contradict each other.
        """
        cfg, spec = self.cfg, self.spec
        for key, value in (("preload_share", cfg.preload_share), ("offline_updates", cfg.offline_updates)):
            if value and not cfg.preload:
                raise UserError(f"{key}={value}: nothing is preloaded; preload=<data set, or a run's folder> names it")
        if cfg.offline_updates > cfg.num_train_steps:
            raise UserError(
                f"offline_updates={cfg.offline_updates}: each counts as a step, and "
                f"num_train_steps={cfg.num_train_steps}"
            )
        if not cfg.preload:
            return []
        if spec.obs.has_frames or cfg.obs_groups:
            kind = "groups of its observations" if cfg.obs_groups else "stacks of vectors"
            kind = "images" if spec.obs.image else kind
            raise UserError(f"preload={cfg.preload}: vectors can be preloaded, and this run learns from {kind}")
        opened = [sources.opened(text, cfg, spec, self.own_actions) for text in sources.named(cfg.preload)]
        self._require_room(sum(source.num_transitions for source in opened))
        return opened

    def _require_room(self, total: int) -> None:
        """Raises UserError if `total` transitions do not fit into their buffer, or are too few for a batch."""
        cfg, capacity = self.cfg, self.cfg.replay_buffer.get("capacity")
        batch_size = cfg.agent.get("batch_size", 0)
        share = 0
        if cfg.preload_share:
            require_memory(*self._shapes, total, f"preload: {total} transitions")
            share = round(cfg.preload_share * batch_size)
            if batch_size and (share == 0 or (share == batch_size and cfg.preload_share < 1)):
                raise UserError(
                    f"preload_share={cfg.preload_share}: of agent.batch_size={batch_size} rows that is {share}; choose "
                    f"{1 / batch_size:.3g} to {1 - 1 / batch_size:.3g}, or 1"
                )
        elif isinstance(capacity, int) and total > capacity:
            raise UserError(
                f"replay_buffer_capacity={capacity}: {total} transitions are preloaded; raise it, or keep them apart "
                "from the run's own with preload_share=0.5"
            )
        num_drawn = batch_size if cfg.offline_updates else share
        if not draws_with_replacement(cfg) and total < num_drawn:
            raise UserError(f"preload: {total} transitions, of which a batch without replacement takes {num_drawn}")

    def fill(self, agent: Any = None) -> int:
        """Reads the transitions that `preload` names; returns the number of those in the replay buffer.

        Args:
            agent: observes every transition; None if it has done so before.

        Raises:
            UserError: if they cannot be read.
        """
        opened = self.sources()
        if not opened:
            return 0
        if self.cfg.preload_share:
            self._make_buffer(sum(source.num_transitions for source in opened))
        target = self.replay_buffer if self.buffer is None else self.buffer
        for source in opened:
            observe = None if agent is None else agent.observe
            print(source.feed(build_n_step(self.cfg), observe, batch_adder(target)), flush=True)
        return target.num_added if self.buffer is None else 0

    def restore(self, saved: Saved) -> None:
        """Reads the transitions from a checkpoint, without their original source."""
        saved.read_rows(PRELOADED, self._make_buffer(saved.count_rows(PRELOADED)))

    def _make_buffer(self, capacity: int) -> ReplayBuffer:
        """Creates the buffer of the preloaded transitions, and mixes it into the batches."""
        with_replacement = draws_with_replacement(self.cfg)
        size = nbytes(*self._shapes, capacity)
        storage = device_buffer.choose_storage("auto", self.device, with_replacement, capacity, size)
        seed = int(np.random.SeedSequence([self.cfg.seed, STREAM]).generate_state(1)[0])
        kind = device_buffer.STORAGES[storage]
        self.buffer = self.offline = kind(*self._shapes, capacity, self.device, seed, with_replacement)
        self.batches = MixedBatches(self.replay_buffer, self.buffer, self.cfg.preload_share)
        return self.buffer

    def state_dict(self) -> dict[str, Any]:
        """Returns the counters and the generator of the preloaded buffer; its rows are saved apart."""
        return {} if self.buffer is None else self.buffer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores such a state, once `restore` or `fill` has created the buffer."""
        if self.buffer is not None:
            self.buffer.load_state_dict(state)
