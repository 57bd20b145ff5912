"""What `preload=` names: data sets of Minari's, by id or by folder, and older runs, whose replay buffer it is."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from replay import minari_files, on_disk
from replay.episodes import chains, columns_of, feed
from replay.minari_files import MinariFiles
from replay.n_step import NStep
from replay_buffer import ReplayBuffer
from run.env_spec import EnvSpec
from run.saving import checkpoint
from run.saving.checkpoint import BUFFER, FOLDER
from run.saving.links import refuse_links
from settings import plain_yaml as saved_yaml
from settings.schema import Settings
from utils import FLOAT32_MAX, UserError, one_line, require_count

CONFIG = "config.yaml"  # of a run's folder
Add = Callable[..., None]
Observe = Callable[..., None] | None


class Source(Protocol):
    """Transitions that are there before the run."""

    said: str
    num_transitions: int

    def check(self) -> None:
        """Reads all of it once. Raises UserError for what is not whole."""

    def feed(self, n_step: NStep, observe: Observe, add: Add) -> str:
        """Shows them all and stores their rows (see replay.episodes.feed); returns what is said of them."""


def named(preload: str | list[str] | None) -> list[str]:
    """What the key names, folders by their absolute names: so it is saved, and compared when the run goes on."""
    given = [preload] if isinstance(preload, str) else preload or []
    try:
        return [str(Path(text).resolve()) if Path(text).is_dir() else text for text in given]
    except (OSError, ValueError) as error:  # a name that no file can have
        raise UserError(f"preload={one_line(str(preload))[:80]}: {one_line(error)[:80]}") from None


def find(cfg: Settings, spec: EnvSpec, own_actions: Any) -> list[Source]:
    """Opens everything that `preload` names, and looks whether it fits the run.

    Args:
        spec: of the run's environment.
        own_actions: the environment's (see dmc2gym.wrappers).

    Raises:
        UserError: for what is not there, cannot be read, or does not fit.
    """
    return [_find(text, cfg, spec, own_actions) for text in named(cfg.preload)]


def _find(text: str, cfg: Settings, spec: EnvSpec, own_actions: Any) -> Source:
    said, path = f"preload={text}", Path(text)
    if path.is_dir() and (path / CONFIG).exists():
        return OldRun(path, said, cfg, spec)
    folder = minari_files.folder_of(path) if path.is_dir() else minari_files.folder_of(minari_files.root() / text)
    if folder is None:
        there = ", ".join(minari_files.there()[:20]) or "none"
        what = "no run's folder (config.yaml) and no data set (data/metadata.json)" if path.is_dir() else "not there"
        raise UserError(f"{said}: {what}; data sets in {minari_files.root()}: {there}")
    return DataSet(folder, said, cfg, spec, own_actions)


class DataSet:
    """A data set of Minari's.

    Args:
        folder: with its files.
        said: what errors begin with.
        cfg, spec, own_actions: as for `find`.
    """

    def __init__(self, folder: Path, said: str, cfg: Settings, spec: EnvSpec, own_actions: Any):
        if importlib.util.find_spec("h5py") is None:
            raise UserError(f"{said}: h5py is missing; pip install -e '.[data]'")
        self._files = files = MinariFiles(folder, said)
        self.said, self._own = said, own_actions
        self.num_transitions = files.num_transitions
        if files.obs_dim != spec.obs_dim:
            raise UserError(f"{said}: its observations have {files.obs_dim} numbers, env={cfg.env} {spec.obs_dim}")
        low, high = files.actions.low, files.actions.high
        if not own_actions.are_within(low, high):
            ours = f"{own_actions.low.tolist()} to {own_actions.high.tolist()}"
            theirs = f"{np.asarray(low).tolist()} to {np.asarray(high).tolist()}"
            raise UserError(f"{said}: its actions are within {theirs}, those of env={cfg.env} within {ours}"[:400])
        if files.action_repeat != cfg.action_repeat:
            raise UserError(_repeats(said, files.action_repeat, cfg))

    def check(self) -> None:
        for _ in self._files.episodes(self._own.inverse):
            pass

    def feed(self, n_step: NStep, observe: Observe, add: Add) -> str:
        count, returns = feed(self._files.episodes(self._own.inverse), n_step, observe, add)
        of = f" of {self._files.env}" if self._files.env else ""
        return f"{self.said}: {count} transitions in {len(returns)} episodes{of}, mean return {np.mean(returns):.1f}"


class OldRun:
    """The replay buffer of a run's newest whole checkpoint.

    Rows of one step are put together to episodes again, so they serve any n. Rows of more steps stay what they are.

    Args:
        folder: the run's.
        said, cfg, spec: as for DataSet.
    """

    def __init__(self, folder: Path, said: str, cfg: Settings, spec: EnvSpec):
        refuse_links(folder)
        self.said = said
        theirs = self._settings(folder / CONFIG)
        try:
            found, _ = checkpoint.newest_whole(folder, buffer=True)
            found.require({"obs_dim": spec.obs_dim, "action_dim": spec.action_dim})
        except UserError as error:
            raise UserError(f"{said}: {error}") from None
        self._segments, self._rows_in = found.segments, folder / FOLDER / BUFFER
        if not self._segments:
            raise UserError(f"{said}: its newest checkpoint has no replay buffer in rows")
        if theirs["action_repeat"] != cfg.action_repeat:
            raise UserError(_repeats(said, theirs["action_repeat"], cfg))
        self._n_step = theirs["n_step"]
        if self._n_step > 1:
            ours = {"n_step": cfg.n_step, "discount": cfg.agent.get("discount")}
            for key, value in ours.items():
                if theirs[key] != value:
                    raise UserError(f"{said}: its rows are of {key}={theirs[key]}, which the run would need: {value}")
            if cfg.agent.get("reward_normaliser"):
                raise UserError(
                    f"{said}: its rows are of n_step={self._n_step}, and a reward normaliser wants n_step=1"
                )
        self._shape = spec.obs_shape, spec.action_shape
        self.num_transitions = self._segments[-1].stop - self._segments[0].start

    def _settings(self, path: Path) -> dict[str, Any]:
        """Those that its rows depend on."""
        try:
            config = saved_yaml.load(path, resolved=True)
            wanted = {key: require_count(config[key], key) for key in ("n_step", "action_repeat")}
            wanted["discount"] = config["agent"].get("discount")
        except (OSError, KeyError, TypeError, AttributeError, ValueError):
            raise UserError(f"{self.said}: {CONFIG} is not a run's configuration") from None
        return wanted

    def check(self) -> None:
        self._columns()

    def feed(self, n_step: NStep, observe: Observe, add: Add) -> str:
        columns = self._columns()
        if self._n_step == 1:
            _, returns = feed(chains(columns), n_step, observe, add)
            return f"{self.said}: {self.num_transitions} transitions in {len(returns)} pieces of episodes"
        ends = np.ones(1, bool)
        for obs, action, reward, next_obs, discount in zip(
            *(columns[name] for name in ("obs", "actions", "rewards", "next_obs", "discounts")), strict=True
        ):
            terminated = discount == 0
            if observe is not None:
                seen = np.array([reward]), next_obs[None], ends & terminated, ends & ~terminated
                observe(obs[None], action[None], *seen)
            add(obs, action, reward, next_obs, True, terminated, discount)
        return f"{self.said}: {self.num_transitions} rows of n_step={self._n_step}"

    def _columns(self) -> dict[str, np.ndarray]:
        rows = ReplayBuffer(*self._shape, self.num_transitions, torch.device("cpu"))
        try:
            on_disk.read(self._rows_in, self._segments, rows, {"num_added": self._segments[-1].stop})
            rows.num_added = self._segments[-1].stop
        except (ValueError, OSError) as error:
            raise UserError(f"{self.said}: {one_line(error)}") from None
        columns = columns_of(rows.stored(self._segments[0].start, self._segments[-1].stop))
        for name, values in columns.items():
            if not (np.abs(values) <= FLOAT32_MAX).all():
                raise UserError(f"{self.said}: its {name} are not all finite")
        return columns


def _repeats(said: str, theirs: Any, cfg: Settings) -> str:
    return f"{said}: its actions were held for {one_line(str(theirs))} steps, and action_repeat={cfg.action_repeat}"
