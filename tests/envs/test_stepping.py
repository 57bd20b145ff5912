"""Environments step in a thread only if their steps are long, and with the same results."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probes
import pytest
from kills import Killed
from runs import RUN, assert_same

from envs import stepping
from envs.stepping import MEASURED, Stepping


class Steps:
    """An environment that records the thread of each step."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def step(self, actions: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        if actions == "fault":
            raise Killed
        return actions


class Updates:
    """A call is an update: it calls `meanwhile` once."""

    meanwhile: Callable[[], None] | None = None

    def __call__(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()


@pytest.mark.parametrize(("seconds", "threads"), [(0.00011, 5), (0.00009, 0)])
def test_a_long_step_gets_a_thread_while_an_update_runs(
    monkeypatch: pytest.MonkeyPatch, seconds: float, threads: int
) -> None:
    ticks = iter(seconds * n for n in range(1000))
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    envs, updates = Steps(), Updates()
    steps = Stepping(envs, updates)
    for number in range(MEASURED + 5):
        result = steps.prepare(number)
        updates()
        assert result() == number
    assert envs.threads.count("environments_0") == threads
    assert steps.prepare("alone")() == "alone"  # no update ran meanwhile
    assert envs.threads.count("environments_0") == threads and updates.meanwhile is None
    result = steps.prepare("fault")
    updates()
    with pytest.raises(Killed):
        result()
    steps.close()
    assert "environments_0" not in [thread.name for thread in threading.enumerate()]


def test_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ("env=Pendulum-v1", *RUN, "execution=auto", "num_envs=2")
    probes.train(tmp_path / "here", *run)
    monkeypatch.setattr(stepping, "MIN_THREADED_STEP_S", 0.0)
    beside = probes.workspace(tmp_path / "beside", *run)
    used: list[str] = []
    step = beside.envs.step

    def noted(actions: Any) -> Any:
        used.append(threading.current_thread().name)
        return step(actions)

    beside.envs.step = noted  # type: ignore[method-assign]
    beside.loop.stepping = Stepping(beside.envs, beside.agent.execution)
    beside.run()
    assert used.count("environments_0") > 30
    assert_same(tmp_path / "beside", tmp_path / "here")
