"""Reads the folders of runs: their configuration and their logs."""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from files.reading import json_or, read_csv
from settings import plain_yaml
from utils import UserError, one_line

CONFIG_FILE = "config.yaml"
AS_WRITTEN_FILE = ".hydra/config.yaml"
PROVENANCE_FILE = "provenance.json"
REQUIRED = {"env": str, "seed": int, "num_train_steps": int, "agent.name": str}
Columns = dict[str, tuple[list[float], list[float]]]  # column -> (steps, values) of the rows that have it


@dataclass(frozen=True)
class Run:
    """A run's folder and its configuration."""

    folder: Path
    config: dict[str, Any]

    @property
    def task(self) -> str:
        return self.config["env"]

    @property
    def agent(self) -> str:
        return self.config["agent"]["name"]

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def length(self) -> int:
        """The environment steps that the run is configured for."""
        return self.config["num_train_steps"]

    @property
    def from_pixels(self) -> bool:
        return self.config.get("from_pixels", False)

    @cached_property
    def written(self) -> dict[str, Any]:
        """The configuration with its interpolations (`${…}`) unresolved; empty if the run did not save it."""
        path = self.folder / AS_WRITTEN_FILE
        return (plain_yaml.load(path, inside=2) or {}) if path.exists() else {}

    @cached_property
    def evaluations(self) -> Columns:
        return read(self.folder / "eval.csv")

    @property
    def returns(self) -> tuple[list[float], list[float]]:
        """The steps of the evaluations, rising, and their mean returns."""
        return self.evaluations.get("episode_reward", ([], []))

    @property
    def last_step(self) -> int:
        """The environment step of the last evaluation; 0 before the first."""
        steps, _ = self.returns
        return int(steps[-1]) if steps else 0

    @property
    def finished(self) -> bool:
        """Whether the run has its final evaluation. Otherwise it is still training, or has crashed."""
        return self.last_step >= self.length

    @cached_property
    def provenance(self) -> list[dict[str, Any]]:
        """The provenance of each process of the run (see run/provenance.py); empty if the run did not save it."""
        return [entry for entry in json_or(self.folder / PROVENANCE_FILE, []) if isinstance(entry, dict)]

    @property
    def last_video(self) -> Path | None:
        videos = [path for path in self.folder.glob("video/*.mp4") if path.stem.isdecimal()]
        return max(videos, key=lambda path: int(path.stem), default=None)


def find(paths: Iterable[str]) -> list[Run]:
    """Finds the runs in folders, sweeps and all matches of patterns, each once, sorted by folder.

    Raises UserError for a path without runs, or a run whose config.yaml cannot be read.
    """
    folders: set[Path] = set()
    for path in paths:
        try:
            matches = [Path(path)] if Path(path).exists() else _matching(path)
            if not path:  # Path("") is "."
                matches = []
            new = {folder.resolve() for match in matches for folder in _run_folders(match)}
        except OSError as error:
            raise UserError(f"{error.filename or path}: {error.strerror}") from None
        if not new:
            reason = "no run in it (a run's folder has a config.yaml)" if matches else "no such folder"
            raise UserError(f"{path or repr(path)}: {reason}")
        folders |= new
    return [Run(folder, load(folder / CONFIG_FILE)) for folder in sorted(folders)]


def _matching(pattern: str) -> list[Path]:
    top = Path(Path(pattern).anchor)  # the current folder if the pattern is relative
    try:
        matches = list(top.glob(str(Path(pattern).relative_to(top))))
    except ValueError as error:  # "**" beside other characters, before Python 3.13
        raise UserError(f"{pattern}: {one_line(error)}") from None
    return [match for match in matches if not match.name.startswith(".")]


def _run_folders(top: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:  # os.walk would leave out what it cannot read
        raise error

    for name, folders, files in os.walk(top, onerror=refuse):
        if CONFIG_FILE in files:
            yield Path(name)
            folders.clear()  # folders within a run are part of it
        else:  # `.hydra` has a config.yaml too
            folders[:] = [folder for folder in folders if not folder.startswith(".")]


def load(path: Path) -> dict[str, Any]:
    """Reads a run's configuration; raises UserError if the file cannot be read, or is not one."""
    config = plain_yaml.load(path)
    settings = config if isinstance(config, dict) else {}
    agent = settings.get("agent")
    named = {**settings, "agent.name": agent.get("name") if isinstance(agent, dict) else None}
    wrong = [key for key, kind in REQUIRED.items() if type(named.get(key)) is not kind]
    if wrong:
        raise UserError(f"{path}: not the settings of a run ({', '.join(wrong)} missing, or of another type)")
    return settings


def read(path: Path) -> Columns:
    """Reads a log's columns, sorted by step, without empty and non-finite cells and an incomplete last row.

    Raises UserError for a file that cannot be read, or a cell that is not a number.
    """
    columns: dict[str, dict[float, float]] = {}
    try:
        for row in read_csv(path) if path.exists() else []:
            step = float(row["step"])
            for name, cell in row.items() if math.isfinite(step) else ():
                if name and cell and math.isfinite(value := float(cell)):
                    columns.setdefault(name, {})[step] = value
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not a log of a run ({one_line(error)[:80]})") from None
    return {
        name: (steps, [points[step] for step in steps])
        for name, points in columns.items()
        for steps in [sorted(points)]
    }
