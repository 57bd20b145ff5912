"""Which runs count as repetitions of one experiment."""

import dataclasses

import composed
import pytest

from settings.keys import dotted, name_of_group


def group(*overrides: str) -> str:
    return name_of_group(dotted(dataclasses.asdict(composed.settings(*overrides))))


@pytest.mark.parametrize(
    "same",
    ["seed=2", "num_threads=1", "log_save_tb=false", "logger.sinks.wandb.tags=[a]", "+info_keys.height=last"],
)
def test_seed_machine_and_logs_leave_a_run_in_its_group(same: str) -> None:
    assert group(same) == group()


@pytest.mark.parametrize("other", ["agent.batch_size=3", "n_step=3", "experiment=other", "env=walker_walk"])
def test_whatever_changes_training_makes_another_group(other: str) -> None:
    assert group(other) != group()
