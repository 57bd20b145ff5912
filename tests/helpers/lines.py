"""Checks command lines as the command does, without a run."""

from pathlib import Path

from launch import preflight
from launch.request import read


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
