"""Tests that need a GPU: real CUDA graphs, a host that never waits, and pinned memory. `make gpu-check` runs them."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
import yaml
from agents import ACTION_DIM, OBS_DIM, SMALL, make_agent
from own_buffers import PrioritisedBuffer
from stand_in_graphs import (
    AGENTS,
    CHANGES,
    OUT_OF_STEP,
    assert_same,
    delayed,
    fill,
    is_discrete,
    learned,
    make_buffer,
    sees_images,
    train,
)
from transitions import transition

from agent.execution.audit import FIRST
from agent.execution.captured import WARM_UPS
from logger import Logger
from replay.device import STORAGES, DeviceReplayBuffer
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


@pytest.mark.parametrize("storage", ["host", *ON_GPU])
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
    assert len(captured.execution._graphs) == 1 + bool(delays)


def test_four_patterns_replay_in_any_order() -> None:
    eager, captured = (agent_that_is(how, *SMALL, *OUT_OF_STEP) for how in ("eager", "captured"))
    assert_near(train(captured, "device", 60), train(eager, "device", 60))
    assert len(captured.execution._graphs) == 4


def test_compiled_and_captured_updates_are_the_eager_ones_to_rounding() -> None:
    eager, both = (agent_that_is(how, *SMALL) for how in ("eager", "compiled_captured"))
    assert_near(train(both, "device", 20), train(eager, "device", 20))


class Handed(PrioritisedBuffer):
    """Keeps the priorities it gets back but does not draw by them: their rounding would change the draws."""

    def choose(self, batch_size: int) -> Any:
        self.drawn, weights = super().choose(batch_size)
        return self.drawn, weights

    def update_priorities(self, index: torch.Tensor, priorities: torch.Tensor) -> None:
        assert index.cpu().tolist() == self.drawn.tolist()
        vars(self).setdefault("handed", []).append(priorities.cpu().clone())


@pytest.mark.parametrize("name", ["sac", "tqc", "crossq"])
def test_weights_and_priorities_pass_through_a_graph(name: str) -> None:
    found = []
    for how in ("eager", "captured"):
        agent, buffer = agent_that_is(how, *AGENTS[name]), Handed((OBS_DIM,), (ACTION_DIM,), 60, GPU)
        fill(buffer, 40, seed=0)
        PrioritisedBuffer.update_priorities(buffer, torch.arange(40), torch.linspace(0.1, 2, 40))
        found.append([train(agent, buffer, 30), buffer.handed])
    assert_near(found[1], found[0])


def updates(agent: Any, buffer: Any, logger: Any, count: int) -> None:
    for i in range(count):
        agent.update(buffer, logger, 0)
        fill(buffer, 1, seed=i)


def test_an_agent_that_is_changed_is_captured_anew() -> None:
    eager, captured = (agent_that_is(how, *AGENTS["crossq"]) for how in ("eager", "captured"))
    buffers = [make_buffer("host", GPU) for _ in range(2)]
    for change in CHANGES:
        for agent in (eager, captured):
            agent.train(change.get("training", True))
            vars(agent).update(change)
        assert_near(*(train(*pair, 8) for pair in zip((captured, eager), buffers, strict=True)))
    assert captured.execution._enabled


@pytest.mark.parametrize("storage", ON_GPU)
@pytest.mark.parametrize("execution", ["eager", "captured"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_update_waits_for_nothing(name: str, execution: str, storage: str) -> None:
    agent, buffer, logger = (
        agent_that_is(execution, *AGENTS[name]),
        make_buffer(storage, GPU, sees_images(name), is_discrete(name)),
        Logger(Path(), {}),
    )
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


@pytest.mark.parametrize("storage", ON_GPU)
def test_batches_on_the_gpu_are_what_was_added(storage: str) -> None:
    buffer = STORAGES[storage]((3,), (2,), 5000, GPU)
    for i in range(12_000):
        buffer.add(*transition(i))
        if i % 500 == 0:
            newest = {float(j) for j in range(max(0, i - 4999), i + 1)}
            batch = buffer.sample(256)
            assert batch.obs.device.type == "cuda"
            assert set(batch.reward[:, 0].tolist()) <= newest
            assert torch.equal(batch.obs[:, 0], 10 * batch.reward[:, 0])
            assert torch.equal(batch.next_obs, batch.obs + 1)


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


@pytest.mark.parametrize("storage", ON_GPU)
def test_a_resumed_run_goes_on_as_the_straight_one(storage: str) -> None:
    def start() -> tuple[Any, Any]:
        return agent_that_is("captured", *SMALL), make_buffer(storage, GPU)

    logger = Logger(Path(), {})
    straight = start()
    updates(*straight, logger, 20)
    file = io.BytesIO()
    torch.save([part.state_dict() for part in straight], file)
    file.seek(0)
    resumed = start()
    for part, state in zip(resumed, torch.load(file, weights_only=True), strict=True):
        part.load_state_dict(state)
    resumed[1].rows[:] = straight[1].rows
    assert_same(learned(resumed[0]), learned(straight[0]))
    assert_near(train(*resumed, 20), train(*straight, 20))


def test_training_on_a_gpu_captures_and_mirrors_of_itself(tmp_path: Path) -> None:
    run = probes.train(tmp_path, "env=ProbeTwoSteps-v0", "device=cuda", "execution=auto", *SMALL)
    used = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert (used["execution"], used["replay_storage"]) == ("captured", "device")
    assert run.agent.num_updates > 0
    assert run.agent.execution._graphs
