"""Which runs count as repetitions of one experiment."""

import dataclasses

import composed

from settings.keys import name_of_group
from utils import dotted


def group(*overrides: str) -> str:
    return name_of_group(dotted(dataclasses.asdict(composed.settings(*overrides))))


def test_seed_machine_and_logs_leave_a_run_in_its_group_and_whatever_changes_training_does_not() -> None:
    for same in ("seed=2", "num_threads=1", "log_save_tb=false", "logger.sinks.wandb.tags=[a]", "+info_keys.x=last"):
        assert group(same) == group(), same
    for other in ("agent.batch_size=3", "n_step=3", "experiment=other", "env=walker_walk"):
        assert group(other) != group(), other
