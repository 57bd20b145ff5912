"""Data sets on disk: those that Minari writes are read unchanged; damaged or hostile ones are refused in one line."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import made_datasets
import minari
import numpy as np
import pytest
from made_datasets import change_metadata, make, replace
from minari.data_collector import EpisodeBuffer

from replay import minari_files
from replay.minari_files import MinariFiles
from utils import UserError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    return tmp_path / "root"


def read(folder: Path) -> list[Any]:
    return list(MinariFiles(folder, "preload=it").episodes(lambda own: own.astype(np.float32)))


def test_what_minari_writes_is_read() -> None:
    files = MinariFiles(make(env="some_task", action_repeat=2), "preload=it")
    assert (files.num_episodes, files.num_transitions, files.obs_dim) == (4, 18, 2)
    assert (files.env, files.action_repeat) == ("some_task", 2)
    for found, made in zip(files.episodes(lambda own: own), made_datasets.EPISODES, strict=True):
        np.testing.assert_array_equal(found.obs, made.observations)
        np.testing.assert_array_equal(found.actions, made.actions)
        np.testing.assert_array_equal(found.rewards, made.rewards)
        assert found.terminated == made.terminations[-1]  # type: ignore[index]
    assert minari_files.there() == ["made/known-v0"]


def test_without_a_home_the_folder_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert minari_files.root() == Path(os.environ["MINARI_DATASETS_PATH"])
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    with pytest.raises(UserError, match=r"^MINARI_DATASETS_PATH: set it to the folder of the data sets"):
        minari_files.there()


def test_more_than_ten_episodes_come_in_their_order() -> None:
    lengths = [len(one.rewards) for one in read(make(episodes=[made_datasets.episode(n, n + 1) for n in range(13)]))]
    assert lengths == list(range(1, 14))


def test_observations_of_several_kinds_are_flat_as_gymnasium_makes_them() -> None:
    space = gym.spaces.Dict(
        {
            "z": gym.spaces.Box(-1, 1, (2, 3), np.float64),
            "a": gym.spaces.Tuple([gym.spaces.Discrete(4, start=2), gym.spaces.Box(0, 9, (), np.int64)]),
        }
    )
    space.seed(3)
    elements = [space.sample() for _ in range(6)]
    observations = {
        "z": np.stack([one["z"] for one in elements]),
        "a": tuple(np.stack([one["a"][i] for one in elements]) for i in range(2)),
    }
    ends = np.arange(5) == 4
    one = EpisodeBuffer(None, None, None, observations, np.zeros((5, 1), np.float32), np.zeros(5), ends, ~ends & False)
    (found,) = read(make(episodes=[one], observation_space=space))
    flat = np.stack([gym.spaces.flatten(space, one) for one in elements]).astype(np.float32)
    np.testing.assert_array_equal(found.obs, flat)


def test_choices_are_read_as_they_are_and_no_others() -> None:
    def of(name: str, *actions: float) -> list[Any]:
        ends = np.arange(3) == 2
        one = EpisodeBuffer(None, None, None, np.zeros((4, 2)), np.array(actions), np.zeros(3), ends, ~ends & False)
        return read(make(f"made/{name}-v0", [one], action_space=gym.spaces.Discrete(3, start=-1)))

    (found,) = of("right", -1, 1, 0)
    np.testing.assert_array_equal(found.actions, [-1, 1, 0])
    for name, *actions in (("above", -1, 2, 0), ("below", -2, 0, 0), ("between", 0, 0.5, 0)):
        with pytest.raises(UserError, match="episode_0/actions: a choice outside of 3"):
            of(name, *actions)


def evil_env(folder: Path, mark: Path) -> None:
    """Removes the space, so that Minari would make the environment that the data set names: here, call os.mkdir."""
    spec = gym.envs.registration.EnvSpec("Evil-v0", entry_point="os:mkdir", kwargs={"path": str(mark)})
    change_metadata(folder, observation_space=..., env_spec=spec.to_json())


def elsewhere(folder: Path) -> Path:
    """Makes another file with an array, which the data set must not read."""
    path = folder.parent / "other.hdf5"
    with h5py.File(path, "w") as file:
        file["secret"] = np.zeros(4)
    return path


def virtual(folder: Path) -> None:
    layout = h5py.VirtualLayout((4,), np.float64)
    layout[:] = h5py.VirtualSource(elsewhere(folder), "secret", (4,))
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_0/rewards"]
        file.create_virtual_dataset("episode_0/rewards", layout)


def external(folder: Path) -> None:
    raw = folder.parent / "raw"
    raw.write_bytes(np.zeros(4).tobytes())
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_0/rewards"]
        file.create_dataset("episode_0/rewards", (4,), np.float64, external=[(str(raw), 0, 32)])


def vast(folder: Path) -> None:
    """Declares terabytes that take no space in the file."""
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
        file.create_dataset("episode_0/observations", (5, 10**6, 10**6), np.float32, chunks=(1, 100, 100))


def vast_pieces(folder: Path) -> None:
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_0/rewards"]
        file.create_dataset("episode_0/rewards", (4,), np.float64, maxshape=(None,), chunks=(2**27,), compression=9)


def extra(folder: Path) -> None:
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        file["extra"] = [1]


def cut(folder: Path) -> None:
    path = folder / "main_data.hdf5"
    os.truncate(path, path.stat().st_size // 2)


def linked(folder: Path) -> None:
    path = folder / "main_data.hdf5"
    path.symlink_to(path.rename(folder.parent / "other.hdf5"))


def linked_folder(folder: Path) -> None:
    folder.symlink_to(folder.rename(folder.parent / "other"))


def pipe(folder: Path) -> None:
    (folder / "main_data.hdf5").unlink()
    os.mkfifo(folder / "main_data.hdf5")


def in_pieces(name: str, **values: Any) -> str:
    return json.dumps({"type": name} | values)


def deep() -> str:
    return '{"type": "Tuple", "subspaces": [' * 3000 + "]}" * 3000


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "an environment to import": (lambda f: evil_env(f, f / "MARK"), "it has no observation_space, and the environment"),
    "a link to another file": (
        lambda f: replace(f, "rewards", h5py.ExternalLink(elsewhere(f), "/secret")),
        "episode_0/rewards is a link",
    ),
    "a link within": (lambda f: replace(f, "actions", h5py.SoftLink("/episode_1/actions")), "actions is a link"),
    "an array of other files'": (virtual, "episode_0/rewards lies in another file"),
    "raw bytes of another file": (external, "episode_0/rewards lies in another file"),
    "texts": (lambda f: replace(f, "rewards", ["x"] * 4), "episode_0/rewards is no array of numbers"),
    "too few": (lambda f: replace(f, "actions", np.zeros((3, 1))), r"actions is \(3, 1\), and \(4, 1\) is needed"),
    "terabytes": (vast, "observations is larger than what the file holds of it"),
    "a vast piece": (vast_pieces, "rewards has chunks of more than"),
    "no number": (lambda f: replace(f, "rewards", [0, np.nan, 0, 0]), r"episode_0: rewards\[1\] is nan"),
    "an infinite action": (lambda f: replace(f, "actions", [[0], [0], [np.inf], [0]]), r"actions\[2, 0\] is inf"),
    "too large for float32": (lambda f: replace(f, "observations", np.full((5, 2), 1e300)), r"obs\[0, 0\] is inf"),
    "an episode that goes on": (lambda f: replace(f, "truncations", [0, 1, 0, 1]), "episode_0 goes on after its end"),
    "no episode": (extra, "extra is no episode's name"),
    "half a file": (cut, "main_data.hdf5: "),
    "no file": (lambda f: (f / "main_data.hdf5").unlink(), "No such file"),
    "a link to other numbers": (linked, "main_data.hdf5: a link, and none is followed here"),
    "a linked folder": (linked_folder, "metadata.json cannot be read .*a link"),
    "a pipe": (pipe, "main_data.hdf5: not a file"),
    "a terabyte of metadata": (lambda f: os.truncate(f / "metadata.json", 2**40), "metadata.json cannot be read"),
    "an infinite number": (lambda f: change_metadata(f, action_repeat=float("inf")), "metadata.json cannot be read"),
    "a repeat of text": (lambda f: change_metadata(f, action_repeat="often"), "metadata.json: invalid literal"),
    "a repeat of a list": (lambda f: change_metadata(f, action_repeat=[1]), "metadata.json: int"),
    "a start out of range": (
        lambda f: change_metadata(f, observation_space=in_pieces("Discrete", n=3, start=1e999)),
        "metadata.json: cannot convert float infinity",
    ),
    "a start of a choice that no number holds": (
        lambda f: change_metadata(f, observation_space=in_pieces("Discrete", n=3, start=10**30)),
        "main_data.hdf5",
    ),
    "bounds of text": (
        lambda f: change_metadata(f, action_space=in_pieces("Box", dtype="float32", shape=[1], low="x", high=1.0)),
        "metadata.json: could not convert",
    ),
    "bounds out of range": (
        lambda f: change_metadata(f, action_space=in_pieces("Box", dtype="float32", shape=[1], low=10**400, high=1.0)),
        "metadata.json: int too large",
    ),
    "no JSON": (lambda f: (f / "metadata.json").write_text("{"), "metadata.json cannot be read"),
    "a list": (lambda f: (f / "metadata.json").write_text("[]"), "metadata.json is no description"),
    "a deep space": (lambda f: change_metadata(f, observation_space=deep()), "spaces within each other|recursion"),
    "a vast space": (
        lambda f: change_metadata(
            f, observation_space=in_pieces("Box", dtype="float32", shape=[10**6, 10**6], low=0.0, high=1.0)
        ),
        "a Box that is too large",
    ),
    "a space of objects": (
        lambda f: change_metadata(f, observation_space=in_pieces("Box", dtype="O", shape=[2], low=0.0, high=1.0)),
        "a Box that is too large, or not of numbers",
    ),
    "an unknown space": (
        lambda f: change_metadata(f, observation_space=in_pieces("Graph")),
        "a space of type Graph; Box, Discrete, Dict and Tuple can be read",
    ),
    "choices for actions": (
        lambda f: change_metadata(f, action_space=in_pieces("Tuple", subspaces=[])),
        "its actions are Tuple, and a Box or Discrete is needed",
    ),
    "another format": (lambda f: change_metadata(f, data_format="arrow"), "data_format arrow; only hdf5 can be read"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_hostile_or_damaged_runs_nothing_and_is_one_line(name: str) -> None:
    folder = make()
    change, message = HOSTILE[name]
    change(folder)
    with pytest.raises(UserError, match=rf"^preload=it: .*(?:{message})") as refused:
        read(folder)
    assert "\n" not in str(refused.value) and not (folder / "MARK").exists()


def test_the_evil_data_set_is_one_that_minari_would_run() -> None:
    """If this fails, Minari no longer runs such a data set, and we could use its own reader."""
    folder = make()
    evil_env(folder, folder / "MARK")
    with warnings.catch_warnings(), pytest.raises(Exception):  # noqa: B017
        warnings.simplefilter("ignore")
        minari.load_dataset("made/known-v0")
    assert (folder / "MARK").exists()
