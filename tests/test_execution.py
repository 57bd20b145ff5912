"""Captured and compiled updates against eager ones. A stand-in for CUDA graphs captures here, on the CPU."""

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from agents import ACTION_DIM, OBS_DIM, SMALL, Silent, make_agent

from agent import execution
from agent.execution import WARM_UPS, Captured, choose_execution, set_execution
from device_buffer import STORAGES
from replay_buffer import ReplayBuffer
from utils import UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda")
DELAYED = ("agent.actor_update_frequency=2", "agent.critic_target_update_frequency=2")
OUT_OF_STEP = ("agent.actor_update_frequency=2", "agent.critic_target_update_frequency=3")
FOLLOWERS = ("agent/observation_normaliser=running", "agent/reward_normaliser=returns", "agent.critic_weight_decay=0.1")
RENORM = tuple(f"agent.{part}.network.norm.renorm_after=3" for part in ("actor", "critic"))
SLOW = tuple(f"agent.{part}_lr=1e-4" for part in ("alpha", "actor", "critic"))  # Adam's first steps magnify rounding
AGENTS = {
    "sac": SMALL,
    "sac_v": ("agent=sac_v", *SMALL, "agent.value.hidden_dim=16"),
    "sac_2018": ("agent=sac_2018", *SMALL, "agent.value.hidden_dim=16"),
    "followers": (*SMALL, *FOLLOWERS),
    "crossq": ("agent=crossq", *SMALL, *RENORM, *SLOW),
    "flash_sac": ("agent=flash_sac", *SMALL, *SLOW),
    "simba": ("agent=simba", *SMALL),
    "redq": ("agent=redq", *SMALL, *SLOW),
    "droq": ("agent=droq", *SMALL, *SLOW),
    "tqc": ("agent=tqc", *SMALL, *SLOW),
}
NORMALISED = ("crossq", "flash_sac", "simba", "droq")  # what a normalisation divides by grows rounding too
LINEAR = "{_target_: agent.schedule.Linear, start: 1e-3, final: 1e-4, steps: 10}"


class StandInGraphs:
    """Captures as CUDA does: a capture changes no tensor and no generator's place in its sequence, and a replay runs
    the captured work with the numbers and on the memory that it was captured with, and touches no Python variable.
    """

    def __init__(self, agent: Any):
        self.agent = agent
        self.captures = 0
        self.replays = 0

    def warm_up(self, update: execution.Update) -> execution.Result:
        return update()

    def capture(
        self, update: execution.Update, generators: list[torch.Generator]
    ) -> tuple[execution.Result, Callable[[], None]]:
        self.captures += 1
        assert self.agent.policy.generator in generators
        constants = {"pattern": dict(self.agent.pattern), "numbers": copy(self.agent.numbers)}
        states, kept = [generator.get_state() for generator in generators], deepcopy(self.agent.state_dict())
        unregistered, memory = torch.get_rng_state(), self._memory()
        result = update()
        gradients = self._gradients()
        assert torch.equal(torch.get_rng_state(), unregistered), "drew from a generator that was not registered"
        self.agent.load_state_dict(kept)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        for tensor in self._tensors(result):
            tensor.fill_(torch.nan)  # what a capture returns holds nothing yet

        def replay() -> None:
            self.replays += 1
            assert self._memory() == memory, "the graph would work on what was there before"
            now, gradients_now = {name: getattr(self.agent, name) for name in constants}, self._gradients()
            vars(self.agent).update(constants)
            new = update()
            for tensor, value in zip(self._tensors(result), self._tensors(new), strict=True):
                tensor.copy_(value)
            for parameter, gradient in gradients.items():
                if parameter.grad is not gradients_now[parameter]:
                    gradient.copy_(parameter.grad)
                parameter.grad = gradients_now[parameter]
            vars(self.agent).update(now)

        return result, replay

    def _gradients(self) -> dict[Any, torch.Tensor]:
        modules = self.agent.modules.values()
        return {p: p.grad for module in modules for p in module.parameters() if p.grad is not None}

    def _memory(self) -> list[int]:
        """Where the networks and the optimizers keep what they keep."""
        networks = [module.state_dict() for module in self.agent.modules.values()]
        return [t.data_ptr() for t in self._tensors([networks, [vars(o) for o in self.agent.optimizers.values()]])]

    def _tensors(self, of: Any) -> list[torch.Tensor]:
        if isinstance(of, dict):
            of = list(of.values())
        if isinstance(of, list | tuple):
            return [tensor for part in of for tensor in self._tensors(part)]
        return [of] if isinstance(of, torch.Tensor) else []


def fill(buffer: ReplayBuffer, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(count):
        obs, next_obs = random.standard_normal((2, OBS_DIM), np.float32)
        action = random.uniform(-1, 1, ACTION_DIM).astype(np.float32)
        buffer.add(obs, action, random.uniform(), next_obs, False, bool(random.integers(2)))


class Histograms(Silent):
    """Keeps the last histogram of each key too, and asks for them at every update."""

    def log_histogram(self, key: str, values: Any, step: int, log_frequency: int | None = None) -> None:
        self.values[key] = values.detach().clone()

    def log_param(self, key: str, module: Any, step: int, log_frequency: int | None, member: int | None) -> None:
        self.values[key] = module.weight.grad.detach().clone()

    def histograms_due(self, step: int) -> bool:
        return True


def make_buffer(storage: str, device: torch.device = CPU) -> ReplayBuffer:
    """A ring of 60 that holds 40."""
    buffer = STORAGES[storage]((OBS_DIM,), (ACTION_DIM,), 60, device)
    fill(buffer, 40, seed=0)
    return buffer


def train(agent: Any, buffer: ReplayBuffer | str, updates: int) -> list[dict[str, Any]]:
    """Updates on a buffer, or a fresh one of that storage, with additions between; what was logged at each.

    The agent observes other numbers than the buffer gets, so that a scale it follows changes by much.
    """
    buffer = make_buffer(buffer, agent.device) if isinstance(buffer, str) else buffer
    logged = []
    for step in range(updates):
        log = Histograms()
        agent.update(buffer, log, step)
        logged.append(log.values)
        fill(buffer, 3, seed=step + 1)
        obs = np.random.default_rng(step).normal(step, 3, (2, OBS_DIM)).astype(np.float32)
        ends = np.array([False, step % 3 == 0])
        agent.observe(obs, np.zeros((2, ACTION_DIM)), obs[:, 0], obs + 1, ends, ends)
    return logged


def assert_same(ours: Any, theirs: Any, **tolerance: float) -> None:
    torch.testing.assert_close(ours, theirs, **(tolerance or {"rtol": 0.0, "atol": 0.0}))


def learned(agent: Any) -> dict[str, Any]:
    return {name: value for name, value in agent.state_dict().items() if name != "numbers"}


@pytest.mark.parametrize("storage", ["host", "device"])
@pytest.mark.parametrize("name", AGENTS)
def test_captured_updates_are_the_eager_ones_to_the_last_bit(name: str, storage: str) -> None:
    eager, captured = (make_agent(*AGENTS[name], *DELAYED) for _ in range(2))
    graphs = StandInGraphs(captured)
    captured.execution = Captured(graphs)
    expected, found = train(eager, storage, 20), train(captured, storage, 20)
    assert_same(found, expected)  # metrics, histograms and gradients, of every update
    assert_same(learned(captured), learned(eager))
    # The first update only shows what is asked about; then each pattern is warmed up and captured once.
    assert graphs.captures == 2
    assert graphs.replays == 20 - 1 - 2 * WARM_UPS


def test_each_pattern_of_what_is_due_has_a_graph_of_its_own() -> None:
    eager, captured = (make_agent(*SMALL, *OUT_OF_STEP) for _ in range(2))
    graphs = StandInGraphs(captured)
    captured.execution = Captured(graphs)
    assert_same(train(captured, "device", 40), train(eager, "device", 40))
    assert_same(learned(captured), learned(eager))
    assert graphs.captures == 4  # both, either, neither


def test_graphs_go_on_from_a_state_that_was_loaded() -> None:
    eager, captured = (make_agent(*SMALL, *DELAYED) for _ in range(2))
    graphs = StandInGraphs(captured)
    captured.execution = Captured(graphs)
    found = []
    for agent in (eager, captured):
        buffer = make_buffer("device")
        saved = deepcopy([agent.state_dict(), buffer.state_dict()])
        train(agent, buffer, 13)
        for part, state in zip((agent, buffer), saved, strict=True):
            part.load_state_dict(state)
        assert agent.due(2)  # an odd number of updates is forgotten
        found.append((train(agent, buffer, 6), learned(agent)))
    assert_same(found[1], found[0])
    assert graphs.captures == 2  # in the first 13 updates; the last 6 are replays
    assert graphs.replays == 13 - 1 - 2 * WARM_UPS + 6


@pytest.mark.parametrize(
    ("name", "dtype", "overrides"),
    [
        *((name, None, DELAYED) for name in AGENTS),
        ("sac", torch.bfloat16, OUT_OF_STEP),
        ("sac_v", torch.bfloat16, OUT_OF_STEP),
        ("sac", None, ("agent.learnable_temperature=false",)),
    ],
)
def test_recorded_updates_are_the_eager_ones_to_the_last_bit(name: str, dtype: Any, overrides: Any) -> None:
    eager, recorded = (make_agent(*AGENTS[name], *overrides) for _ in range(2))
    eager.autocast_dtype = recorded.autocast_dtype = dtype
    set_execution(recorded, "recorded", CPU)
    recorded.run_update_step = counted = Mock(side_effect=recorded.update_step)
    buffers = [make_buffer("host") for _ in range(2)]
    saved = deepcopy([recorded.state_dict(), buffers[1].state_dict()])
    expected, found = (train(*pair, 16) for pair in zip((eager, recorded), buffers, strict=True))
    assert_same(found, expected)  # metrics, histograms and gradients, of every update
    assert [list(logged) for logged in found] == [list(logged) for logged in expected]  # in their order too
    assert_same(learned(recorded), learned(eager))
    assert counted.call_count < 8  # once for the first, and once a pattern

    for part, state in zip((recorded, buffers[1]), saved, strict=True):
        part.load_state_dict(state)  # recordings go on from a state that was loaded
    found = train(recorded, make_buffer("host"), 16)
    assert_same(found, expected)


def test_a_copy_of_an_agent_and_one_that_is_changed_are_recorded_anew() -> None:
    eager, recorded = (make_agent("agent=crossq", *SMALL) for _ in range(2))
    set_execution(recorded, "recorded", CPU)
    assert_same(train(recorded, "host", 5), train(eager, "host", 5))
    copied = deepcopy(recorded.execution)
    assert not copied._recordings
    for change in ({"training": False}, {"autocast_dtype": torch.bfloat16}, {"batch_size": 8}):
        for agent in (eager, recorded):
            agent.train(change.get("training", True))
            vars(agent).update(change)
        assert_same(train(recorded, "host", 5), train(eager, "host", 5))


def test_what_cannot_be_recorded_runs_eagerly(capsys: pytest.CaptureFixture[str]) -> None:
    eager, recorded = (make_agent(*SMALL) for _ in range(2))
    set_execution(recorded, "recorded", CPU)
    generator = torch.Generator().manual_seed(0)
    step = recorded.update_step

    def with_a_draw(batch: Any, noise: torch.Tensor) -> Any:
        torch.rand(1, generator=generator)
        return step(batch, noise)

    recorded.run_update_step = with_a_draw
    assert_same(train(recorded, "host", 6), train(eager, "host", 6))
    assert capsys.readouterr().out == "Updates run eagerly: an argument of type Generator cannot be recorded.\n"


def test_another_buffer_is_captured_anew() -> None:
    eager, captured = (make_agent(*SMALL) for _ in range(2))
    captured.execution = Captured(StandInGraphs(captured))
    for _ in range(2):
        assert_same(train(captured, make_buffer("device"), 8), train(eager, make_buffer("device"), 8))


def test_learning_rates_and_the_temperature_follow_their_schedules_in_a_graph() -> None:
    overrides = (f"agent.critic_lr={LINEAR}", f"agent.init_temperature={LINEAR}", "agent/temperature=fixed")
    eager, captured = (make_agent(*SMALL, *overrides) for _ in range(2))
    assert choose_execution("auto", captured, GPU) == ("captured", "")
    captured.execution = Captured(StandInGraphs(captured))
    assert_same(train(captured, "host", 12), train(eager, "host", 12))
    assert_same(learned(captured), learned(eager))


def test_what_a_graph_would_freeze_is_not_captured() -> None:
    agent = make_agent(*SMALL, f"reward_scale={LINEAR}", f"agent.critic_lr={LINEAR}")
    choice, why = choose_execution("auto", agent, GPU)
    assert choice == "eager"
    assert "agent.reward_scale on a schedule" in why
    for chosen in ("captured", "compiled"):
        with pytest.raises(UserError, match=f"execution={chosen}: agent.reward_scale on a schedule .*; choose eager"):
            choose_execution(chosen, agent, GPU)  # type: ignore[arg-type]


def test_what_cannot_be_had_here_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent(*SMALL)
    assert choose_execution("auto", agent, CPU) == ("recorded", "")
    with pytest.raises(UserError, match=r"execution=recorded: recordings are for a CPU, and device=cuda"):
        choose_execution("recorded", agent, GPU)
    with pytest.raises(UserError, match=r"execution=captured: CUDA graphs need a GPU, and device=cpu"):
        choose_execution("captured", agent, CPU)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("no-such-compiler",))
    with pytest.raises(UserError, match=r"execution=compiled: torch.compile needs a C\+\+ compiler"):
        choose_execution("compiled", agent, CPU)
    with pytest.raises(UserError, match="makes its updates itself"):
        choose_execution("captured", object(), GPU)
    assert choose_execution("auto", object(), GPU)[0] == "eager"


def test_a_capture_that_fails_names_the_way_out() -> None:
    class Failing(StandInGraphs):
        def capture(self, update: Any, generators: Any) -> Any:
            raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    agent = make_agent(*SMALL)
    agent.execution = Captured(Failing(agent))
    with pytest.raises(UserError, match=r"not be captured here \(operation not permitted .* capturing\); execution=ea"):
        train(agent, "device", 20)


@pytest.mark.parametrize("name", AGENTS)
def test_compiled_updates_are_the_eager_ones_to_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without inductor, whose compiler takes half a minute: what is traced, gradients included, is what could go wrong.
    monkeypatch.setattr(execution, "COMPILE_BACKEND", "aot_eager")
    torch._dynamo.reset()
    delayed = DELAYED if name.startswith("sac") else DELAYED[:1]
    eager, compiled = (make_agent(*AGENTS[name], *delayed) for _ in range(2))
    set_execution(compiled, "compiled", CPU)
    near = {"rtol": 1e-4, "atol": 1e-6} if name not in NORMALISED else {"rtol": 1e-3, "atol": 1e-5}
    assert_same(train(compiled, "host", 6), train(eager, "host", 6), **near)
    assert_same(learned(compiled), learned(eager), **near)
