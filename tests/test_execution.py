"""Captured and compiled updates against eager ones. A stand-in for CUDA graphs captures here, on the CPU."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

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
AGENTS = {
    "sac": SMALL,
    "sac_v": ("agent=sac_v", *SMALL, "agent.value.hidden_dim=16"),
    "sac_2018": ("agent=sac_2018", *SMALL, "agent.value.hidden_dim=16"),
}
LINEAR = "{_target_: agent.schedule.Linear, start: 1e-3, final: 1e-4, steps: 10}"


class StandInGraphs:
    """Captures as CUDA does: a capture changes no tensor and no generator's place in its sequence, and a replay runs
    the work that was captured on the memory that it was captured on, whatever Python's variables say by then.
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
        pattern = dict(self.agent.pattern)
        states, kept = [generator.get_state() for generator in generators], deepcopy(self.agent.state_dict())
        unregistered = torch.get_rng_state()
        result = update()
        gradients = self._gradients()
        assert torch.equal(torch.get_rng_state(), unregistered), "drew from a generator that was not registered"
        self.agent.load_state_dict(kept)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        self._spoil(result)  # what a capture returns holds nothing yet

        def replay() -> None:
            self.replays += 1
            now, self.agent.pattern = self.agent.pattern, pattern
            new, before = update(), gradients
            for old_values, new_values in zip(result, new, strict=True):
                assert old_values.keys() == new_values.keys()
                for key, value in new_values.items():
                    if isinstance(value, torch.Tensor):
                        old_values[key].copy_(value)
            for parameter, gradient in before.items():
                if parameter.grad is not gradient:
                    gradient.copy_(parameter.grad)
            self.agent.pattern = now

        return result, replay

    def _gradients(self) -> dict[Any, torch.Tensor]:
        modules = self.agent.modules.values()
        return {p: p.grad for module in modules for p in module.parameters() if p.grad is not None}

    @staticmethod
    def _spoil(result: execution.Result) -> None:
        for values in result:
            for value in values.values():
                if isinstance(value, torch.Tensor):
                    value.fill_(torch.nan)


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


def train(agent: Any, storage: str, updates: int) -> list[dict[str, Any]]:
    """Updates with additions between them; what was logged at each."""
    buffer = STORAGES[storage]((OBS_DIM,), (ACTION_DIM,), 60, CPU)
    fill(buffer, 40, seed=0)
    logged = []
    for step in range(updates):
        log = Histograms()
        agent.update(buffer, log, step)
        logged.append(log.values)
        fill(buffer, 3, seed=step + 1)
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


def test_graphs_go_on_after_a_state_was_loaded() -> None:
    eager, captured = (make_agent(*SMALL, *DELAYED) for _ in range(2))
    graphs = StandInGraphs(captured)
    captured.execution = Captured(graphs)
    saved = deepcopy(eager.state_dict())
    for agent in (eager, captured):
        train(agent, "device", 12)
        agent.load_state_dict(deepcopy(saved))
    replays = graphs.replays
    # The buffer is another, so it is captured anew.
    assert_same(train(captured, "device", 12), train(eager, "device", 12))
    assert_same(learned(captured), learned(eager))
    assert graphs.replays > replays


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
    assert choose_execution("auto", agent, CPU) == ("eager", "")
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
    eager, compiled = (make_agent(*AGENTS[name], *DELAYED) for _ in range(2))
    set_execution(compiled, "compiled", CPU)
    assert_same(train(compiled, "host", 6), train(eager, "host", 6), rtol=1e-4, atol=1e-6)
    assert_same(learned(compiled), learned(eager), rtol=1e-4, atol=1e-6)
