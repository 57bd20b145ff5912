"""Checks command lines as the command does, without a run."""

from pathlib import Path

import pytest

from launch import preflight
from launch.request import read
from settings.schema import Settings


def prepared_folder(*arguments: str) -> Path:
    """Returns the folder that the command claims for its run or sweep."""
    request = read(list(arguments))
    assert request.runs is not None
    if request.runs.sweeping:
        return preflight.prepare_sweep(request)[1]
    run = preflight.prepare_run(request)
    run.parts.close()
    return run.folder


def sweep_arguments(*arguments: str) -> list[str]:
    """Returns the arguments that the command passes to Hydra for its sweep."""
    return preflight.prepare_sweep(read(list(arguments)))[0]


def sweep_request(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[list[Settings], list[str]]:
    """Returns the settings of a sweep's runs that the command checks, without checking them, and Hydra's arguments."""
    monkeypatch.chdir(folder)
    checked: list[Settings] = []
    monkeypatch.setattr(preflight, "check_runs", checked.extend)
    return checked, sweep_arguments(*arguments)
