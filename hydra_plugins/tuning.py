"""Hydra's entry to launch/tuning.py. Hydra imports this package at every start, so Optuna is not imported here."""

from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class TuningSweeper(Sweeper):
    """Runs an Optuna study as a sweep."""

    def __init__(self, **keys: Any): ...

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> None:
        """Runs the trials that are missing; `arguments` are the overrides of the command line."""
        from launch import tuning

        assert self.config is not None and self.launcher is not None
        tuning.sweep(self.launcher, self.config)
