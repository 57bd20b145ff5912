"""Reads Minari data sets without its package. Nothing that they name is run.

    <id>/data/metadata.json    what it is: spaces, counts, how it was made
              main_data.hdf5   episode_0, …: observations (T + 1), actions, rewards, terminations, truncations

If a space is missing, Minari's own reader builds an environment from `env_spec`, which can name any module to import;
HDF5 follows links to other files. This reader accepts only arrays of numbers within the data set's own file.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from files.reading import NO_LIMIT, open_file, read_json
from replay import spaces
from replay.episodes import Episode
from utils import UserError, one_line

METADATA, ARRAYS = "metadata.json", "main_data.hdf5"
MOST_BYTES = 2**26  # largest chunk of an array
MOST_PACKED = 1100  # largest compression ratio; gzip reaches at most 1032
# HDF5's own filters and h5py's LZF; for any other, HDF5 would load a library from the machine.
FILTERS = {1, 2, 3, 4, 5, 6, 32000}
Near = Callable[[np.ndarray], np.ndarray]


def root() -> Path:
    """Returns the folder of Minari's data sets; raises UserError without a home folder and MINARI_DATASETS_PATH."""
    if named := os.environ.get("MINARI_DATASETS_PATH"):
        return Path(named)
    try:
        return Path.home() / ".minari" / "datasets"
    except RuntimeError:  # the system does not know the user, as in a container
        raise UserError("MINARI_DATASETS_PATH: set it to the folder of the data sets, as there is no home") from None


def there() -> list[str]:
    """Returns the ids of the data sets in `root()`."""
    names = (path.parents[1].relative_to(root()) for path in root().glob(f"**/data/{METADATA}"))
    return sorted(str(name) for name in names if not name.name.startswith("."))  # hidden ones are being written


def folder_of(path: Path) -> Path | None:
    """Returns the folder with the files: `path / "data"`, or `path` itself; None if neither has METADATA."""
    return next((folder for folder in (path / "data", path) if (folder / METADATA).is_file()), None)


class MinariFiles:
    """Reads one data set.

    Args:
        folder: the folder with the two files.
        said: the beginning of every error message.

    Attributes:
        env: the task that the metadata names; "" if none.
        action_repeat: number of steps for which each action was held.
        obs_groups: the key's value, if the observations were divided into groups; "" if not.
        actions: the action space.
        obs_dim: width of a flat observation.

    Raises:
        UserError: if the data set cannot be read, or breaks the format.
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
                raise ValueError(f"it has no {missing[0]}, and the environment that it names is not run to find out")
            self._obs = spaces.parse(json.loads(about["observation_space"]))
            self.actions = spaces.parse(json.loads(about["action_space"]))
            if self.actions.kind not in ("Box", "Discrete"):
                raise ValueError(f"its actions are {self.actions.kind}, and a Box or Discrete is needed")
            self.action_repeat = int(about.get("action_repeat", 1))
        except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError, RecursionError, MemoryError) as error:
            raise UserError(f"{said}: {METADATA}: {one_line(error)}") from None
        self.env = one_line(str(about.get("env", "")))[:80]
        self.obs_groups = one_line(str(about.get("obs_groups") or ""))[:80]
        self.obs_dim = self._obs.width
        self._lengths = self._checked(lambda file: {name: _length(file, name) for name in sorted(file, key=_number)})
        if not self._lengths:
            raise UserError(f"{said}: there is no episode in it")
        self.num_episodes, self.num_transitions = len(self._lengths), sum(self._lengths.values())

    def _metadata(self, path: Path) -> dict[str, Any]:
        try:
            about = read_json(path, inside=2)
        except (OSError, ValueError) as error:
            raise UserError(f"{self._said}: {METADATA} cannot be read ({one_line(error)[:80]})") from None
        if not isinstance(about, dict):
            raise UserError(f"{self._said}: {METADATA} is no description of a data set")
        return about

    def _checked(self, read: Callable[[Any], Any]) -> Any:
        """Calls `read` with the open file of arrays; turns any error of the file into a UserError."""
        import h5py  # optional, so not at the top

        try:
            with open_file(self._path, NO_LIMIT, inside=2) as raw, h5py.File(raw, "r") as file:
                return read(file)
        except UserError:
            raise
        except OSError as error:  # HDF5's own errors have no `strerror`
            raise UserError(f"{self._said}: {ARRAYS}: {error.strerror or one_line(error)[:160]}") from None
        except Exception as error:  # HDF5 raises many kinds for a damaged or forged file
            raise UserError(f"{self._said}: {ARRAYS}: {one_line(error)[:160] or type(error).__name__}") from None

    def episodes(self, from_own: Near) -> Iterator[Episode]:
        """Reads the episodes in order; raises UserError for a damaged one.

        Args:
            from_own: maps the environment's actions (T, *shape) to a policy's, (T, |A|) or (T, 1).
        """
        for name, length in self._lengths.items():
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
        if self.actions.kind == "Discrete":
            self.actions.choices(actions, f"{name}/actions")
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
    """Returns the number of an episode's transitions; its other arrays are checked when they are read."""
    array = _array(file, f"{name}/rewards")
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name}/rewards is {array.shape}")
    return len(array)


def _array(file: Any, path: str) -> Any:
    """Returns an array of numbers that lies within this file.

    Raises ValueError for a missing or too large array, a link, data in another file, or a filter that is not HDF5's.
    """
    import h5py

    node: Any = file
    for name in path.split("/"):
        link = node.get(name, getlink=True) if isinstance(node, h5py.Group) else None
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"{path} is not there" if link is None else f"{path} is a link, and none is followed")
        node = node[name]
    if not isinstance(node, h5py.Dataset) or node.dtype.kind not in spaces.NUMBERS:
        raise ValueError(f"{path} is no array of numbers")
    properties = node.id.get_create_plist()
    if node.is_virtual or node.external:
        raise ValueError(f"{path} lies in another file, and none is followed")
    if not {properties.get_filter(i)[0] for i in range(properties.get_nfilters())} <= FILTERS:
        raise ValueError(f"{path} is packed by a filter that is not HDF5's own")
    if node.chunks and int(np.prod(node.chunks, dtype=np.float64)) * node.dtype.itemsize > MOST_BYTES:
        raise ValueError(f"{path} has chunks of more than {MOST_BYTES:,} bytes")
    if node.nbytes > MOST_PACKED * node.id.get_storage_size():
        raise ValueError(f"{path} is larger than what the file holds of it")
    return node
