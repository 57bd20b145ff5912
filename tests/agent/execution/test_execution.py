"""Recorded, captured and compiled updates against eager ones. A stand-in for CUDA graphs captures on the CPU."""

from copy import deepcopy
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from agents import ACTION_DIM, OBS_DIM, SMALL, make_agent
from forks import ForkAgent
from stand_in_graphs import (
    AGENTS,
    CHANGES,
    DELAYED,
    MORE,
    OUT_OF_STEP,
    StandInGraphs,
    assert_same,
    buffer_for,
    delayed,
    learned,
    make_buffer,
    train,
)

from agent.execution.captured import WARM_UPS, Captured
from agent.execution.recorded import Recorded
from agent.networks import BatchNorm
from run.execution import choose_execution, set_execution
from utils import UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda")
HOST = ("sac", "sac_discrete", "drq")  # one agent for each kind of row that is copied to a graph's memory
QUICK = ("sac", "followers", "crossq", "drq", "droq", "sac_discrete", "sac_v")
LINEAR = "{_target_: agent.schedule.Linear, start: 1e-3, final: 1e-4, steps: 10}"


def agents(names: tuple[str, ...], *arguments: Any) -> list[Any]:
    """A test's parameters for each agent, of which `make test` runs the named ones."""
    return [pytest.param(name, *arguments, marks=() if name in names else pytest.mark.thorough) for name in AGENTS]


@pytest.mark.parametrize(("name", "storage"), [*agents(QUICK, "device"), *agents(HOST, "host")])
def test_captured_updates_are_the_eager_ones_to_the_last_bit(
    name: str, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchNorm, "enter_phase", lambda _: None)  # as on a GPU, where the tensors decide
    eager, captured = (make_agent(*AGENTS[name], *delayed(name)) for _ in range(2))
    graphs = StandInGraphs(captured)
    captured.execution = Captured(graphs)
    expected, found = train(eager, storage, 20), train(captured, storage, 20)
    assert_same(found, expected)
    assert_same(learned(captured), learned(eager))
    # The first update, before which no pattern is known, is no warm-up; then each pattern is captured once.
    assert graphs.captures == 2
    assert graphs.replays == 20 - 1 - 2 * WARM_UPS


def test_each_pattern_of_what_is_due_has_a_graph_of_its_own() -> None:
    eager, captured = (make_agent(*SMALL, *OUT_OF_STEP) for _ in range(2))
    graphs = StandInGraphs(captured)
    captured.execution = Captured(graphs)
    assert_same(train(captured, "device", 40), train(eager, "device", 40))
    assert_same(learned(captured), learned(eager))
    assert graphs.captures == 4  # both due, only one (two patterns), neither


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
        assert agent.due(2)  # the 13 updates, an odd number, are forgotten
        found.append((train(agent, buffer, 6), learned(agent)))
    assert_same(found[1], found[0])
    assert graphs.captures == 2  # in the first 13 updates; the last 6 updates are replays
    assert graphs.replays == 13 - 1 - 2 * WARM_UPS + 6


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        *agents(QUICK, ()),
        *(pytest.param(name, (), marks=pytest.mark.thorough) for name in MORE),
        ("sac", OUT_OF_STEP),
        ("sac_v", OUT_OF_STEP),
        ("sac", ("agent.learnable_temperature=false",)),
    ],
    ids=str,
)
def test_recorded_updates_are_the_eager_ones_to_the_last_bit(name: str, overrides: Any) -> None:
    delays = overrides or delayed(name)
    eager, recorded = (make_agent(*(AGENTS | MORE)[name], *delays) for _ in range(2))
    set_execution(recorded, "recorded", CPU)
    recorded.update_step = counted = Mock(spec=recorded.update_step, side_effect=recorded.update_step)
    buffers = [buffer_for(recorded, "host") for _ in range(2)]
    saved = deepcopy([recorded.state_dict(), buffers[1].state_dict()])
    expected, found = (train(*pair, 16) for pair in zip((eager, recorded), buffers, strict=True))
    assert_same(found, expected)
    assert [list(logged) for logged in found] == [list(logged) for logged in expected]  # in the same order too
    assert_same(learned(recorded), learned(eager))
    assert counted.call_count < 8  # once per pattern, and in the audit

    for part, state in zip((recorded, buffers[1]), saved, strict=True):
        part.load_state_dict(state)  # recordings continue from a loaded state
    found = train(recorded, "host", 16)
    assert_same(found, expected)


@pytest.mark.parametrize("execution", ["recorded", "captured"])
@pytest.mark.parametrize("name", ["crossq", "droq"])  # with batch statistics, and with dropout
def test_an_agent_that_is_changed_updates_as_the_eager_one(name: str, execution: str) -> None:
    eager, changed = (make_agent(*AGENTS[name]) for _ in range(2))
    changed.execution = Recorded() if execution == "recorded" else Captured(StandInGraphs(changed))
    buffers = [make_buffer("host") for _ in range(2)]
    for change in CHANGES:
        for agent in (eager, changed):
            agent.train(change.get("training", True))
            vars(agent).update(change)
        assert_same(*(train(agent, buffer, 8) for agent, buffer in zip((changed, eager), buffers, strict=True)))
    assert changed.execution._enabled


@pytest.mark.parametrize("execution", ["recorded", "captured"])
def test_histograms_show_the_gradients_of_their_update(execution: str) -> None:
    agent, buffer = make_agent(*SMALL), make_buffer("host")
    agent.execution = Recorded() if execution == "recorded" else Captured(StandInGraphs(agent))
    train(agent, buffer, 12)
    agent.update(buffer, logger := Mock(histograms_due=lambda step: True), 12)
    assert logger.log_param.called and not agent.histograms_due


def test_what_cannot_be_recorded_runs_eagerly_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    eager, agent = (make_agent(*SMALL) for _ in range(2))
    set_execution(agent, "recorded", CPU)
    step = agent.update_step

    def branches(batch: Any, noise: Any) -> Any:
        return step(batch, noise) if batch.reward.mean() > -100 else None

    agent.update_step = branches
    assert_same(train(agent, "host", 4), train(eager, "host", 4))
    obstacle = "a tensor's value that Python reads (if, float, item: aten::_local_scalar_dense)"
    assert capsys.readouterr().out == f"Updates run eagerly: {obstacle} cannot be recorded.\n"


def test_learning_rates_and_the_temperature_follow_their_schedules_in_a_graph() -> None:
    overrides = (f"agent.critic_lr={LINEAR}", f"agent.init_temperature={LINEAR}", "agent/temperature=fixed")
    eager, captured = (make_agent(*SMALL, *overrides) for _ in range(2))
    assert choose_execution("auto", captured, GPU) == "captured"
    captured.execution = Captured(StandInGraphs(captured))
    assert_same(train(captured, "host", 12), train(eager, "host", 12))
    assert_same(learned(captured), learned(eager))


def test_what_cannot_be_had_here_is_one_line() -> None:
    plain, own = make_agent(*SMALL), ForkAgent(OBS_DIM, ACTION_DIM, (-1.0, 1.0), CPU)
    frozen = make_agent(*SMALL, f"reward_scale={LINEAR}", f"agent.critic_lr={LINEAR}")
    for agent, device, chosen in ((plain, CPU, "recorded"), (own, GPU, "eager"), (frozen, GPU, "eager")):
        assert choose_execution("auto", agent, device) == chosen
    for asked, agent, device, why in (
        ("captured", frozen, GPU, "agent.reward_scale on a schedule"),
        ("compiled", frozen, GPU, "agent.reward_scale on a schedule"),
        ("recorded", plain, GPU, "execution=recorded"),
        ("captured", plain, CPU, "execution=captured"),
        ("captured", own, GPU, "makes its updates itself"),
    ):
        with pytest.raises(UserError, match=why):
            choose_execution(asked, agent, device)  # type: ignore[arg-type]


def test_a_capture_that_fails_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent(*SMALL)
    agent.execution = Captured(graphs := StandInGraphs(agent))
    monkeypatch.setattr(graphs, "capture", Mock(side_effect=RuntimeError("not permitted")))
    with pytest.raises(UserError, match=r"not permitted.*choose execution=eager"):
        train(agent, "device", 20)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ("td3", "droq", "crossq", "sac_discrete", "drq"))
def test_compiled_updates_are_the_eager_ones_to_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without inductor, whose compiler takes half a minute: the risk lies in what is traced, gradients included.
    monkeypatch.setattr("agent.execution.compiled.BACKEND", "aot_eager")
    torch._dynamo.reset()
    eager, compiled = (make_agent(*AGENTS[name], *DELAYED[:1]) for _ in range(2))
    set_execution(compiled, "compiled", CPU)
    near = {"rtol": 1e-3, "atol": 1e-5}
    assert_same(train(compiled, "host", 6), train(eager, "host", 6), **near)
    assert_same(learned(compiled), learned(eager), **near)
