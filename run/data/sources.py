"""Reads the sources that `preload=` names: Minari data sets, by id or by folder, and older runs, whose replay buffer
is read."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from files.links import refuse_links
from replay import minari_files
from replay.episodes import chains, columns_of, feed
from replay.minari_files import MinariFiles
from replay.n_step import NStep
from replay_buffer import ReplayBuffer
from run.checkpoint import BUFFER, read_newest
from run.env_spec import EnvSpec
from settings import plain_yaml
from settings.schema import Settings
from utils import FLOAT32_MAX, UserError, one_line, require_count

CONFIG = "config.yaml"  # in a run's folder
Add = Callable[..., None]
Observe = Callable[..., None] | None


def named(preload: str | list[str] | None) -> list[str]:
    """Returns the names in the value of `preload`. Folders become absolute paths, as they are saved and compared."""
    texts = [preload] if isinstance(preload, str) and preload else preload or []
    if "" in texts:
        raise UserError(f"preload={preload}: a data set, or the folder of a run, goes in place of ''")
    try:
        return [str(Path(text).resolve()) if Path(text).is_dir() else text for text in texts]
    except (OSError, ValueError) as error:  # a name that no file can have
        raise UserError(f"preload={one_line(str(preload))[:80]}: {one_line(error)[:80]}") from None


def opened(text: str, cfg: Settings, spec: EnvSpec, own_actions: Any) -> "DataSet | OldRun":
    """Opens one source by its name, and checks that it fits the run.

    Args:
        own_actions: the environment's action bounds (see dmc2gym.wrappers).

    Raises:
        UserError: if it is missing, cannot be read, or does not fit.
    """
    label, path = f"preload={text}", Path(text)
    if path.is_dir() and (path / CONFIG).exists():
        return OldRun(path, label, cfg, spec)
    folder = minari_files.folder_of(path if path.is_dir() else minari_files.root() / text)
    if folder is None:
        available = ", ".join(minari_files.there()[:20]) or "none"
        fault = "no run's folder (config.yaml) and no data set (data/metadata.json)" if path.is_dir() else "not there"
        raise UserError(f"{label}: {fault}; data sets in {minari_files.root()}: {available}")
    return DataSet(folder, label, cfg, spec, own_actions)


class DataSet:
    """A Minari data set.

    Args:
        label: `preload=<name>`, the prefix of messages.
    """

    def __init__(self, folder: Path, label: str, cfg: Settings, spec: EnvSpec, own_actions: Any):
        if importlib.util.find_spec("h5py") is None:
            raise UserError(f"{label}: h5py is missing; pip install -e '.[data]'")
        self._files = files = MinariFiles(folder, label)
        self.label, self._own_actions = label, own_actions
        self.num_transitions = files.num_transitions
        if files.obs_dim != spec.obs_dim:
            raise UserError(f"{label}: its observations have {files.obs_dim} numbers, env={cfg.env} {spec.obs_dim}")
        if files.obs_groups:
            raise UserError(f"{label}: its observations are of obs_groups={files.obs_groups}, and this run has none")
        low, high = files.actions.low, files.actions.high
        if not own_actions.are_within(files.actions.kind, low, high):
            expected = f"{own_actions.low.tolist()} to {own_actions.high.tolist()} ({own_actions.space})"
            actual = f"{np.asarray(low).tolist()} to {np.asarray(high).tolist()} ({files.actions.kind})"
            raise UserError(f"{label}: its actions are within {actual}, those of env={cfg.env} within {expected}"[:400])
        _require_action_repeat(label, files.action_repeat, cfg)

    def check(self) -> None:
        """Reads all transitions once. Raises UserError if they are damaged."""
        for _ in self._files.episodes(self._own_actions.inverse):
            pass

    def feed(self, n_step: NStep, observe: Observe, add: Add) -> str:
        """Passes every transition to `observe`, and its rows to `add` (see replay.episodes.feed); returns a summary."""
        count, returns = feed(self._files.episodes(self._own_actions.inverse), n_step, observe, add)
        env = f" of {self._files.env}" if self._files.env else ""
        return f"{self.label}: {count} transitions in {len(returns)} episodes{env}, mean return {np.mean(returns):.1f}"


class OldRun:
    """The replay buffer of a run's newest intact checkpoint; used like a DataSet.

    Its 1-step rows are joined into episodes again, and so fit any `n_step` of the new run. Rows of several steps are
    taken as they are.
    """

    def __init__(self, folder: Path, label: str, cfg: Settings, spec: EnvSpec):
        refuse_links(folder)
        self.label = label
        old = self._old_settings(folder / CONFIG)
        try:
            identity = {"obs_dim": spec.obs_dim, "action_dim": spec.action_dim}
            self._saved = read_newest(folder, identity=identity, with_rows=True)
        except UserError as error:
            raise UserError(f"{label}: {error}") from None
        segments = self._saved.manifest[BUFFER]
        if not segments:
            raise UserError(f"{label}: its newest checkpoint has no replay buffer in rows")
        if any(segment["ring"] == "frames" for segment in segments):
            raise UserError(f"{label}: its rows are of stacks of frames, and this run has frame_stack=1")
        _require_action_repeat(label, old["action_repeat"], cfg)
        for key in ("action_bounds", "obs_groups"):
            if old[key] != (needed := getattr(cfg, key)):
                has = one_line(str(old[key]))[:80]
                raise UserError(f"{label}: its rows are of {key}={has}, and this run has {key}={needed}")
        self._n_step, self._num_envs = old["n_step"], old["num_envs"]
        if self._n_step > 1:
            for key, needed in (("n_step", cfg.n_step), ("discount", cfg.agent.get("discount"))):
                if old[key] != needed:
                    raise UserError(f"{label}: its rows are of {key}={old[key]}, which the run would need: {needed}")
            if cfg.agent.get("reward_normaliser"):
                raise UserError(
                    f"{label}: its rows are of n_step={self._n_step}, and a reward normaliser wants n_step=1"
                )
        self._shapes = spec.obs_shape, spec.action_shape
        self._start, self._stop = segments[0]["start"], segments[-1]["stop"]
        self.num_transitions = self._stop - self._start

    def _old_settings(self, path: Path) -> dict[str, Any]:
        """Returns the older run's settings that its rows depend on."""
        try:
            config = plain_yaml.load(path, resolved=True)
            old: dict[str, Any] = {key: require_count(config[key], key) for key in ("n_step", "action_repeat")}
            old["num_envs"] = require_count(config.get("num_envs", 1), "num_envs")
            old |= {key: config.get(key) for key in ("action_bounds", "obs_groups")}  # missing in older runs
            return old | {"discount": config["agent"].get("discount")}
        except (OSError, KeyError, TypeError, AttributeError, ValueError):
            raise UserError(f"{self.label}: {CONFIG} is not a run's configuration") from None

    def check(self) -> None:
        self._columns()

    def feed(self, n_step: NStep, observe: Observe, add: Add) -> str:
        columns = self._columns()
        if self._n_step == 1:
            _, returns = feed(chains(columns, self._num_envs), n_step, observe, add)
            return f"{self.label}: {self.num_transitions} transitions in {len(returns)} pieces of episodes"
        done = np.ones(len(columns["obs"]), bool)  # every row counts as an episode's end: its successor is unknown
        names = "obs", "actions", "rewards", "next_obs", "discounts"
        *step, discounts = (columns[name] for name in names)
        terminated = discounts == 0
        if observe is not None:
            for row in zip(*step, terminated, ~terminated, strict=True):
                observe(*(value[None] for value in row))
        add(*step, done, terminated, discounts)
        return f"{self.label}: {self.num_transitions} rows of n_step={self._n_step}"

    def _columns(self) -> dict[str, np.ndarray]:
        """Reads all rows, split into columns such as `obs` and `actions`."""
        buffer = ReplayBuffer(*self._shapes, self.num_transitions, torch.device("cpu"))
        try:
            self._saved.read_rows(BUFFER, buffer)
            buffer.num_added = self._stop
        except (ValueError, OSError) as error:
            raise UserError(f"{self.label}: {one_line(error)}") from None
        columns = columns_of(buffer.stored(self._start, self._stop))
        for name, values in columns.items():
            if not (np.abs(values) <= FLOAT32_MAX).all():
                raise UserError(f"{self.label}: its {name} are not all finite")
        return columns


def _require_action_repeat(label: str, action_repeat: Any, cfg: Settings) -> None:
    if action_repeat != cfg.action_repeat:
        held = one_line(str(action_repeat))
        raise UserError(f"{label}: its actions were held for {held} steps, and action_repeat={cfg.action_repeat}")
