"""The replay buffer of a run, and the data that it begins with, from Minari data sets and older runs: in that buffer
or, with `preload_share`, in a buffer of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf

from replay import device as device_buffer
from replay import frames
from replay.episodes import feed, split_episodes
from replay.mixed import MixedBatches
from replay.n_step import NStep, batch_adder
from replay_buffer import ReplayBuffer
from run.agents import EnvSpec
from run.checkpoint import BUFFER, PRELOADED, read_newest
from settings.schema import Settings
from utils import UserError

STREAM = 2  # distinguishes this generator's seed from those of envs/episodes.py, which have more numbers
Source = tuple[int, Callable[..., None]]  # the number of its transitions; what feeds them to n_step, observe and add


def make_n_step(cfg: Settings) -> NStep:
    """Makes the NStep that turns steps into rows; it discounts rewards as they are stored, so by a constant."""
    discount = 1.0 if cfg.n_step == 1 else cfg.agent.get("discount")
    if not isinstance(discount, float | int):
        raise UserError(f"n_step={cfg.n_step}: agent.discount must be a number, not a schedule; or choose n_step=1")
    return NStep(cfg.n_step, discount)


def draws_with_replacement(cfg: Settings) -> bool:
    """Returns whether a batch may hold a transition twice."""
    return bool(cfg.replay_buffer.get("with_replacement", True))


def choose_storage(cfg: Settings, spec: EnvSpec, device: torch.device) -> str:
    """Resolves `replay_storage=auto`; a user's own replay buffer has "auto", as it decides itself."""
    if get_object(cfg.replay_buffer["_target_"]) is not ReplayBuffer:
        return "auto"
    is_uniform = draws_with_replacement(cfg) and cfg.replay_buffer.get("sampling") is None
    sizes = spec.obs, spec.action_shape, cfg.replay_buffer["capacity"]
    return device_buffer.fit_storage(cfg.replay_storage, device, is_uniform, *sizes)


def make_replay_buffer(cfg: Settings, spec: EnvSpec, device: torch.device, storage: str) -> Any:
    """Makes the replay buffer that `cfg.replay_buffer` describes; `storage` is the result of `choose_storage`."""
    node = dict(cfg.replay_buffer)
    arguments: dict[str, Any] = {"obs_shape": spec.obs.shape, "action_shape": spec.action_shape, "device": device}
    if storage != "auto":
        kind = (frames if spec.obs.has_frames else device_buffer).STORAGES[storage]
        node["_target_"] = f"{kind.__module__}.{kind.__qualname__}"
        if spec.obs.has_frames:
            frames_apart = cfg.num_envs * (spec.obs.frame_stack + cfg.n_step + 2)  # in two rows of one environment
            arguments |= {"obs_spec": spec.obs, "searched": max(frames.SEARCHED, frames_apart)}
    buffer = instantiate(node, _convert_="all")(**arguments)
    if storage == "auto":
        buffer.load_state_dict(buffer.state_dict())  # a user's class that cannot do this could not resume
    return buffer


@dataclass(eq=False)
class Preloaded:
    """The preloaded transitions, in `buffer` if `preload_share` is above 0, and what updates draw `batches` from.
    `action_map` maps to the environment's actions (dmc2gym.wrappers)."""

    cfg: Settings
    spec: EnvSpec
    device: torch.device
    replay_buffer: Any
    action_map: Any

    def __post_init__(self) -> None:
        self.buffer: Any = None
        self.batches = self.replay_buffer

    def fill(self, agent: Any = None) -> int:
        """Reads the transitions that `preload` names; returns the number of those in the replay buffer. The agent
        observes each of them; None if it has done so before."""
        cfg = self.cfg
        if not cfg.preload:
            return 0
        if self.spec.obs.has_frames or cfg.obs_groups:
            raise UserError(f"preload={cfg.preload}: only vectors can be preloaded, without frame_stack or obs_groups")
        if cfg.preload_share and hasattr(self.replay_buffer, "update_priorities"):
            raise UserError(f"preload_share={cfg.preload_share}: must be 0 with a replay buffer that draws by priority")
        sources: dict[str, Source] = {}
        for name in parse_names(cfg.preload):
            is_run = (Path(name) / "config.yaml").exists()
            sources[name] = _open_run(name, cfg, self.spec) if is_run else _open_data_set(name, cfg, self.action_map)
        total, target = sum(num_transitions for num_transitions, _ in sources.values()), self.replay_buffer
        if cfg.preload_share:
            target = self._make_buffer(total)
        elif total > target.capacity:
            raise UserError(f"replay_buffer_capacity={target.capacity}: must be at least {total}, which are preloaded")
        for name, (num_transitions, feed_rows) in sources.items():
            feed_rows(make_n_step(cfg), agent and agent.observe, batch_adder(target))
            print(f"preload={name}: {num_transitions} transitions", flush=True)
        return 0 if cfg.preload_share else target.num_added

    def restore(self, saved: Any) -> None:
        """Reads the transitions from a checkpoint, without their original source."""
        buffer = self._make_buffer(saved.count_rows(PRELOADED))
        saved.read_rows(PRELOADED, buffer)
        buffer.load_state_dict(saved.states["run"]["preloaded"])

    def _make_buffer(self, capacity: int) -> ReplayBuffer:
        """Makes the buffer of the preloaded transitions, and mixes it into the batches."""
        cfg, spec, replaces = self.cfg, self.spec, draws_with_replacement(self.cfg)
        sizes = spec.obs, spec.action_shape, capacity
        kind = device_buffer.STORAGES[device_buffer.fit_storage("auto", self.device, replaces, *sizes)]
        seed = int(np.random.SeedSequence([cfg.seed, STREAM]).generate_state(1)[0])
        self.buffer = kind(spec.obs.shape, spec.action_shape, capacity, self.device, seed, replaces)
        self.batches = MixedBatches(self.replay_buffer, self.buffer, cfg.preload_share)
        return self.buffer


def parse_names(preload: str | list[str] | None) -> list[str]:
    """Returns the names in the value of `preload`; folders become absolute paths, as they are saved and compared."""
    names = [preload] if isinstance(preload, str) else preload or []
    return [str(Path(name).resolve()) if Path(name).is_dir() else name for name in names if name]


def _open_data_set(name: str, cfg: Settings, action_map: Any) -> Source:
    from replay.minari_sets import open_dataset  # needs an optional package

    recorded, num_transitions, episodes = open_dataset(name, action_map)
    _require_same(name, recorded, cfg)
    return num_transitions, partial(feed, episodes)


def _open_run(name: str, cfg: Settings, spec: EnvSpec) -> Source:
    """Opens the replay buffer of a run's newest checkpoint; its rows are joined into episodes again."""
    old: Any = OmegaConf.load(Path(name) / "config.yaml")
    if old.n_step > 1:
        raise UserError(f"preload={name}: it has n_step={old.n_step}; only a run with n_step=1 can be preloaded")
    _require_same(name, {key: old[key] for key in ("action_repeat", "obs_groups")}, cfg)
    identity = {key: spec.agent_arguments()[key] for key in ("obs_dim", "action_dim")}
    saved = read_newest(Path(name), identity=identity, with_rows=True)
    stop = saved.count_rows(BUFFER)
    if not stop:
        raise UserError(f"preload={name}: its newest checkpoint has no rows of a replay buffer")
    buffer = ReplayBuffer(spec.obs.shape, spec.action_shape, min(stop, old.replay_buffer.capacity), torch.device("cpu"))
    saved.read_rows(BUFFER, buffer)
    buffer.num_added = stop
    return len(buffer), partial(feed, split_episodes(buffer.stored(stop - len(buffer), stop), old.num_envs))


def _require_same(name: str, recorded: dict[str, Any], cfg: Settings) -> None:
    for key, value in recorded.items():
        if value != getattr(cfg, key):
            raise UserError(f"preload={name}: it has {key}={value}, and this run {key}={getattr(cfg, key)}")
