"""Reads the folders of runs: their configuration and their logs."""

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from utils import UserError

CONFIG_FILE = "config.yaml"
Points = tuple[list[float], list[float]]  # rising steps (or minutes), values
Columns = dict[str, Points]  # points of the rows that have a value, by column


@dataclass(frozen=True)
class Run:
    """A run's folder and its configuration."""

    folder: Path
    config: dict[str, Any]
    task: str
    agent: str
    seed: int
    length: int

    @cached_property
    def training(self) -> Columns:
        return read(self.folder / "train.csv")

    @cached_property
    def evaluations(self) -> Columns:
        return read(self.folder / "eval.csv")

    @property
    def returns(self) -> Points:
        return self.evaluations.get("episode_reward", ([], []))

    @cached_property
    def returns_by_minute(self) -> Points:
        """The mean returns over minutes of training, which leave out evaluations; none if no speed was logged."""
        steps, speeds = self.training.get("steps_per_second", ([], []))
        minutes = np.cumsum(np.diff(steps, prepend=0) / speeds) / 60 if steps else np.empty(0)
        evaluated, values = self.returns
        return (np.interp(evaluated, [0, *steps], [0, *minutes]).tolist(), values) if steps else ([], [])

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
        path = self.folder / "provenance.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []

    @property
    def last_video(self) -> Path | None:
        videos = [path for path in self.folder.glob("video/*.mp4") if path.stem.isdecimal()]
        return max(videos, key=lambda path: int(path.stem), default=None)


def load(folder: Path) -> Run:
    config: Any = OmegaConf.to_container(OmegaConf.load(folder / CONFIG_FILE))
    return Run(folder, config, config["env"], config["agent"]["name"], config["seed"], config["num_train_steps"])


def find(paths: Iterable[str]) -> list[Run]:
    """Finds the runs in folders, sweeps and all matches of patterns, each once, sorted by folder.

    Raises UserError for a path without runs.
    """
    folders: set[Path] = set()
    for path in paths:
        top = Path(Path(path).anchor)  # the current folder if the path is relative
        matches = [Path(path)] if Path(path).exists() else top.glob(str(Path(path).relative_to(top)))
        found = {folder.resolve() for match in matches if path for folder in _run_folders(match)}
        if not found:
            raise UserError(f"{path!r}: no run there (a run's folder has a {CONFIG_FILE})")
        folders |= found
    return [load(folder) for folder in sorted(folders)]


def _run_folders(top: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(top):
        if CONFIG_FILE in files and Path(name).name != ".hydra":  # which has a config.yaml too
            yield Path(name)
            folders.clear()  # folders within a run are part of it


def read(path: Path) -> Columns:
    """Reads a log's columns, sorted by step, without empty and non-finite cells and an incomplete last row."""
    columns: dict[str, dict[float, float]] = {}
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for row in csv.DictReader(text[: text.rfind("\n") + 1].splitlines()):
        for name, cell in row.items():
            if cell and math.isfinite(value := float(cell)):
                columns.setdefault(name, {})[float(row["step"])] = value
    return {name: tuple(map(list, zip(*sorted(points.items()), strict=True))) for name, points in columns.items()}  # type: ignore[misc]
