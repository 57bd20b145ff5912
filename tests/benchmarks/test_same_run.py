"""same_run.events returns TensorBoard's events in writing order, whatever the files are called."""

from pathlib import Path

import pytest
from same_run import events
from torch.utils.tensorboard import SummaryWriter


@pytest.mark.parametrize("processes", [(7, 12), (12, 7)])
def test_events_of_two_processes_that_began_in_one_second(tmp_path: Path, processes: tuple[int, int]) -> None:
    for step, process in enumerate(processes):
        with SummaryWriter(str(tmp_path / "new")) as writer:
            writer.add_scalar("train/loss", 1.0, step)
        (written,) = (tmp_path / "new").iterdir()
        written.rename(tmp_path / f"events.out.tfevents.1000000000.host.{process}.0")
    assert [step for step, _ in events(tmp_path)["train/loss"]] == [0, 1]
