"""Data sets in Minari's format on disk: found and read, without its package and without running anything of theirs.

    <id>/data/metadata.json    what it is: spaces, counts, how it was made
              main_data.hdf5   episode_0, …: observations (T + 1), actions, rewards, terminations, truncations

Minari's own reader builds an environment from `env_spec`, which names what to import, where a space is missing; and
HDF5 follows links to other files. Here a data set is arrays of numbers within its own file, or it is refused.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from replay import spaces
from replay.episodes import Episode
from utils import UserError, one_line, open_file

METADATA, ARRAYS = "metadata.json", "main_data.hdf5"
MOST_BYTES = 2**26  # of the metadata, and of a chunk of an array
# HDF5's own filters and h5py's LZF. It would look for any other on the machine, as a library to load.
FILTERS = {1, 2, 3, 4, 5, 6, 32000}
Near = Callable[[np.ndarray], np.ndarray]


def root() -> Path:
    """Where Minari keeps data sets.

    Raises:
        UserError: if that is nowhere, as the user has no home folder.
    """
    if named := os.environ.get("MINARI_DATASETS_PATH"):
        return Path(named)
    try:
        return Path.home() / ".minari" / "datasets"
    except RuntimeError:  # of a user that the system does not know, as in a container
        raise UserError("MINARI_DATASETS_PATH: set it to the folder of the data sets, as there is no home") from None


def there() -> list[str]:
    """The ids of the data sets there."""
    found = [path.parents[1].relative_to(root()) for path in root().glob(f"**/data/{METADATA}")]
    return sorted(str(name) for name in found)


def folder_of(path: Path) -> Path | None:
    """The folder with the files, of a data set's own folder or of that one; None if there are none."""
    return next((folder for folder in (path / "data", path) if (folder / METADATA).is_file()), None)


class MinariFiles:
    """One data set.

    Args:
        folder: with the two files.
        said: what an error begins with.

    Attributes:
        num_episodes, num_transitions: in it.
        env: the task that it was recorded in, where it says so.
        action_repeat: the steps that each action was held for.
        actions: their space.
        obs_dim: width of a flat observation.

    Raises:
        UserError: if it cannot be read, or is not what such files are.
    """

    def __init__(self, folder: Path, said: str):
        self._path = folder / ARRAYS
        self._said = said
        about = self._metadata(folder / METADATA)
        try:
            if about.get("data_format", "hdf5") != "hdf5":
                raise ValueError(f"data_format {about['data_format']}; only hdf5 can be read")
            missing = [key for key in ("observation_space", "action_space") if not isinstance(about.get(key), str)]
            if missing:
                raise ValueError(f"it has no {missing[0]}, and the environment that it names is not run to ask it")
            self._obs = spaces.parse(json.loads(about["observation_space"]))
            self.actions = spaces.parse(json.loads(about["action_space"]))
            if self.actions.kind != "Box":
                raise ValueError(f"its actions are {self.actions.kind}, and a Box is needed")
            self.action_repeat = int(about.get("action_repeat", 1))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError) as error:
            raise UserError(f"{said}: {METADATA}: {one_line(error)}") from None
        self.env = one_line(str(about.get("env", "")))[:80]
        self.obs_dim = self._obs.width
        self._names = self._checked(lambda file: sorted(file, key=_number))
        self._lengths = self._checked(lambda file: [_length(file, name) for name in self._names])
        if not self._names:
            raise UserError(f"{said}: there is no episode in it")
        self.num_episodes, self.num_transitions = len(self._names), sum(self._lengths)

    def _metadata(self, path: Path) -> dict[str, Any]:
        try:
            with open_file(path) as file:
                text = file.read(MOST_BYTES + 1)
            about = json.loads(text) if len(text) <= MOST_BYTES else None
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{self._said}: {METADATA} cannot be read ({one_line(error)[:80]})") from None
        if not isinstance(about, dict):
            raise UserError(f"{self._said}: {METADATA} is no description of a data set")
        return about

    def _checked(self, read: Callable[[Any], Any]) -> Any:
        """Reads something of the file with the arrays; whatever is wrong with it is one line."""
        import h5py  # not before: it is optional

        try:
            if not self._path.is_file():
                raise ValueError("not there, or no file")
            with h5py.File(self._path, "r") as file:
                return read(file)
        except UserError:
            raise
        except Exception as error:  # whatever HDF5 says of a file that is damaged or forged
            raise UserError(f"{self._said}: {ARRAYS}: {one_line(error)[:160] or type(error).__name__}") from None

    def episodes(self, from_own: Near) -> Iterator[Episode]:
        """The episodes in their order.

        Args:
            from_own: turns actions (T, *shape) within the environment's bounds into (T, |A|) in [-1, 1].

        Raises:
            UserError: for one that is not whole.
        """
        for name, length in zip(self._names, self._lengths, strict=True):
            yield self._checked(partial(self._episode, name=name, length=length, from_own=from_own))

    def _episode(self, file: Any, name: str, length: int, from_own: Near) -> Episode:
        def read(key: str, shape: tuple[int, ...], count: int = length) -> np.ndarray:
            array = _array(file, f"{name}/{key}")
            if array.shape[1:] != shape or len(array) < count:
                raise ValueError(f"{name}/{key} is {array.shape}, and {(count, *shape)} is needed")
            return array[:count]

        obs = self._obs.flat(lambda key, shape: read(key, shape, length + 1), "observations")
        terminations, truncations = (read(key, ()).astype(bool) for key in ("terminations", "truncations"))
        if (terminations | truncations)[:-1].any():
            raise ValueError(f"{name} goes on after its end")
        actions, rewards = read("actions", self.actions.shape), read("rewards", ()).astype(np.float64)
        wrong = np.argwhere(~np.isfinite(actions))
        if len(wrong):
            raise ValueError(f"{name}: actions{wrong[0].tolist()} is {actions[tuple(wrong[0])]}")
        episode = Episode(obs, from_own(actions), rewards, bool(terminations[-1]))
        if fault := episode.fault():
            raise ValueError(f"{name}: {fault}")
        return episode


def _number(name: str) -> int:
    head, _, number = name.partition("episode_")
    if head or not (number.isascii() and number.isdecimal()) or len(number) > 12:
        raise ValueError(f"{one_line(name)[:40]} is no episode's name")
    return int(number)


def _length(file: Any, name: str) -> int:
    """Transitions of an episode; every array of it is looked at by what is read of it later."""
    array = _array(file, f"{name}/rewards")
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name}/rewards is {array.shape}")
    return len(array)


def _array(file: Any, path: str) -> Any:
    """An array of numbers that lies in this file itself.

    Raises:
        ValueError: for a link, an array kept in other files, or one that only a filter of the machine's could read.
    """
    import h5py

    at: Any = file
    for part in path.split("/"):
        link = at.get(part, getlink=True) if isinstance(at, h5py.Group) else None
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"{path} is not there" if link is None else f"{path} is a link, and none is followed")
        at = at[part]
    if not isinstance(at, h5py.Dataset) or at.dtype.kind not in spaces.NUMBERS:
        raise ValueError(f"{path} is no array of numbers")
    made = at.id.get_create_plist()
    if at.is_virtual or at.external:
        raise ValueError(f"{path} lies in another file, and none is followed")
    if not {made.get_filter(i)[0] for i in range(made.get_nfilters())} <= FILTERS:
        raise ValueError(f"{path} is packed by a filter that is not HDF5's own")
    if at.chunks and int(np.prod(at.chunks, dtype=np.float64)) * at.dtype.itemsize > MOST_BYTES:
        raise ValueError(f"{path} lies in pieces of more than {MOST_BYTES:,} bytes")
    return at
