"""Tests that need a GPU: real CUDA graphs, a host that never waits, and pinned memory. `make gpu-check` runs them."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
import yaml
from agents import OBS_DIM, SMALL, make_agent
from stand_in_graphs import AGENTS, buffer_for, delayed, fill, learned, train
from transitions import transition

from agent.execution.audit import FIRST
from agent.execution.captured import WARM_UPS
from logger import Logger
from replay.device import DeviceReplayBuffer
from run.execution import choose_execution, set_execution
from utils import leaves

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")]

GPU = torch.device("cuda")
CLOSE, CLOSE_TO_ZERO = 0.1, 1e-3  # frozen numbers, other batches or other noise would differ by more
ON_GPU = ["host", "device"]


def assert_near(ours: Any, theirs: Any) -> None:
    """Compares each tensor as a whole: matmul algorithms may differ, and a ReLU whose input is nearly 0 may flip."""
    for (name, value), (other_name, other) in zip(leaves(ours), leaves(theirs), strict=True):
        assert name == other_name
        value, other = (torch.as_tensor(each).double() for each in (value, other))
        apart, size = float((value - other).norm()), float(other.norm())
        assert apart <= CLOSE * size + CLOSE_TO_ZERO * other.numel() ** 0.5, f"{name}: {apart} apart, of {size}"


def agent_that_is(execution: str, *overrides: str) -> Any:
    agent = make_agent(*overrides, device="cuda")
    assert choose_execution(execution, agent, GPU) == execution  # type: ignore[arg-type]
    set_execution(agent, execution, GPU)
    return agent


@pytest.mark.parametrize("storage", ON_GPU)
@pytest.mark.parametrize("name", AGENTS)
def test_captured_updates_are_the_eager_ones_to_rounding(name: str, storage: str) -> None:
    delays = delayed(name)
    eager, captured = (agent_that_is(how, *AGENTS[name], *delays) for how in ("eager", "captured"))
    assert_near(train(captured, storage, 30), train(eager, storage, 30))
    ours, expected = learned(captured), learned(eager)
    if name == "xqc":  # the second norm cancels the first one's shift, whose gradient is only rounding
        for part in ("actor", "critic", "critic_target"):
            del ours[part]["trunk.0.shift"], expected[part]["trunk.0.shift"]
    assert_near(ours, expected)
    assert len(captured.execution._replays) == 1 + bool(delays)


def test_compiled_and_captured_updates_are_the_eager_ones_to_rounding() -> None:
    eager, both = (agent_that_is(how, *SMALL) for how in ("eager", "compiled_captured"))
    assert_near(train(both, "device", 20), train(eager, "device", 20))


def updates(agent: Any, buffer: Any, logger: Any, count: int) -> None:
    for i in range(count):
        agent.update(buffer, logger, 0)
        fill(buffer, 1, seed=i)


@pytest.mark.parametrize("storage", ON_GPU)
@pytest.mark.parametrize("execution", ["eager", "captured"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_update_waits_for_nothing(name: str, execution: str, storage: str) -> None:
    agent, logger = agent_that_is(execution, *AGENTS[name]), Logger(Path(), {})
    buffer = buffer_for(agent, storage)
    updates(agent, buffer, logger, FIRST + 2 * WARM_UPS + 4)  # warmed up, captured, and compared for the first time
    torch.cuda.set_sync_debug_mode("error")
    try:
        updates(agent, buffer, logger, 50)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert logger.dump(0, save=True)


def test_acting_waits_for_the_actions_alone() -> None:
    agent = make_agent(*SMALL, device="cuda")
    obs = np.zeros(OBS_DIM, np.float32)
    agent.act(obs, sample=True)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            agent.act(obs, sample=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == 1, [str(wait.message) for wait in waits]


def test_an_observation_is_not_overwritten_before_it_was_acted_on() -> None:
    agent = make_agent(*SMALL, device="cuda")
    observations = np.random.default_rng(0).standard_normal((200, 1, OBS_DIM), np.float32)
    one_by_one = [agent.act(obs) for obs in observations]
    np.testing.assert_allclose(np.concatenate(one_by_one), agent.act(observations[:, 0]), rtol=1e-3, atol=1e-4)


def test_the_mirror_holds_every_row_though_nobody_waits() -> None:
    buffer = DeviceReplayBuffer((3,), (2,), 3079, GPU)
    work = torch.randn(4096, 4096, device=GPU)
    for i in range(5000):
        buffer.add(*transition(i))
        if i % 3 == 0:
            if i % 300 == 0:
                work = work @ work  # delays the copies
            buffer.stage(1)
    buffer.stage(1)
    assert np.array_equal(buffer.on_device.cpu().numpy(), buffer.rows)


def test_training_on_a_gpu_captures_and_mirrors_of_itself(tmp_path: Path) -> None:
    run = probes.train(tmp_path, "env=ProbeTwoSteps-v0", "device=cuda", "execution=auto", *SMALL)
    used = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert (used["execution"], used["replay_storage"]) == ("captured", "device")
    assert run.agent.num_updates > 0
    assert run.agent.execution._replays
