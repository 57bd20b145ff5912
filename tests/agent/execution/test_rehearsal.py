"""Mistakes in an agent's update step are reported by name, in the first update or soon after."""

import random
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from agents import SMALL, TINY, Silent, make_agent, make_batch
from stand_in_graphs import StandInGraphs, make_buffer
from torch import nn

from agent.execution.captured import Captured
from agent.off_policy import OffPolicyAgent
from agent.sac import SACAgent
from agent.schedule import Linear, Schedules
from replay_buffer import WeightedBatch
from run.execution import set_execution
from utils import RunError, UserError, leaves

Change = Callable[[Any, dict[str, Any]], Any]  # called with an agent and its metrics in each update step


def agent_that(change: Change | None = None, execution: str = "eager") -> Any:
    """Returns a SAC agent that calls `change` at the end of each update step."""
    agent = make_agent(*SMALL, "agent.actor_update_frequency=2")
    if change is not None:
        step = agent.update_step

        def changed(batch: Any, noise: Any) -> Any:
            metrics, seen = step(batch, noise)
            change(agent, metrics)
            return metrics, seen

        agent.update_step = changed
    if execution == "captured":
        agent.execution = Captured(StandInGraphs(agent))
    else:
        set_execution(agent, execution, torch.device("cpu"))
    return agent


def update(agent: Any, times: int = 1, between: Callable[[int], None] = lambda step: None) -> list[dict[str, Any]]:
    """Makes updates, calls `between` before each, and returns what each logged."""
    buffer, logged = make_buffer("host"), []
    for step in range(times):
        between(step)
        log = Silent()
        agent.update(buffer, log, step)
        logged.append(log.values)
    return logged


def test_the_first_update_is_rehearsed_and_nothing_of_it_stays() -> None:
    agent = make_agent("agent=flash_sac", *SMALL)
    update(agent, 3)
    agent._rehearsal = None  # as in the new process of a resumed run
    before, random = agent.snapshot(), torch.get_rng_state()
    gradients = [p.grad.clone() for p in agent.actor.parameters()]
    agent.draw_noise(make_batch(32))
    after = agent.state_dict()
    del before["policy"], after["policy"]  # its generator has drawn the update's noise
    for (name, was), (_, now) in zip(leaves(before), leaves(after), strict=True):
        assert torch.equal(was, now) if isinstance(was, torch.Tensor) else was == now, name
    assert torch.equal(random, torch.get_rng_state())
    assert all(map(torch.equal, gradients, (p.grad for p in agent.actor.parameters())))


def counts_itself(agent: Any, metrics: dict[str, Any]) -> None:
    agent.calls = getattr(agent, "calls", 0) + 1


def logs_a_number(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["train/how_many"] = 3.0


def logs_a_graph(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["train/sum"] = agent.critic(*make_batch(2)[:2]).sum()


def logs_rows(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["train/reward"] = torch.ones(2, 1)


def logs_nowhere(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["critic/loss"] = torch.zeros(())


def logs_a_column_of_the_loop(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["train_episode/reward"] = torch.zeros(())


def logs_one_column_twice(agent: Any, metrics: dict[str, Any]) -> None:
    metrics |= {"train_my/td_error": torch.zeros(()), "train_my_td/error": torch.zeros(())}


def divides_by_zero(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["train_critic/loss"] = metrics["train_critic/loss"] / 0


def subtracts_a_row_from_a_column(agent: Any, metrics: dict[str, Any]) -> None:
    batch = make_batch(32)
    metrics["train/error"] = (batch.reward[:, 0] - agent.critic(*batch[:2]).detach()).square().mean()


def steps_on_a_number(agent: Any, metrics: dict[str, Any]) -> None:
    agent.step_optimizers(critic=1.5)


def reads_the_count(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["train/updates"] = torch.full((), float(agent.num_updates))


def branches_on_the_count(agent: Any, metrics: dict[str, Any]) -> None:
    if agent.num_updates % 2:
        metrics["train/odd"] = torch.zeros(())


def draws_globally(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["train/noise"] = torch.randn(())


def draws_with_numpy(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["train/noise"] = torch.tensor(np.random.normal())


def draws_with_python(agent: Any, metrics: dict[str, Any]) -> None:
    metrics["train/noise"] = torch.tensor(random.random())


def averages_in_an_array(agent: Any, metrics: dict[str, Any]) -> None:
    agent.mean *= 0.9
    agent.mean += 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (logs_a_number, r"SACAgent\.update_step's metric 'train/how_many' is a Python number, which .* freeze"),
        (logs_a_graph, r"SACAgent\.update_step's metric 'train/sum' has a gradient; return it detached"),
        (logs_rows, r"SACAgent\.update_step's metric 'train/reward' has 2 elements; one is needed"),
        (logs_nowhere, r"SACAgent\.update_step's metric 'critic/loss': the key has to begin with train/"),
        (logs_a_column_of_the_loop, r"'train_episode/reward': the training loop has the column episode_reward too"),
        (logs_one_column_twice, r"'train_my_td/error': 'train_my/td_error' has the column my_td_error too; rename it"),
        (
            subtracts_a_row_from_a_column,
            r"SACAgent\.update_step combines shapes \(32,\) and \(2, 32, 1\) into \(2, 32, 32\), in .*"
            r"test_rehearsal\.py, line \d+; give both the same shape",
        ),
        (steps_on_a_number, r"SACAgent: the loss 'critic' is a float; a tensor with a gradient goes here"),
        (reads_the_count, r"SACAgent\.update_step reads num_updates, .*; ask self\.due\(frequency\)"),
        (branches_on_the_count, r"SACAgent\.update_step reads num_updates"),
        (draws_with_numpy, r"SACAgent\.update_step draws from a global generator"),
        (draws_with_python, r"SACAgent\.update_step draws from a global generator"),
        (draws_globally, r"SACAgent\.update_step draws from a global generator; .* noise\.normal\(rows, width\)"),
    ],
)
def test_what_a_recording_would_freeze_is_an_error(change: Change, message: str) -> None:
    with pytest.raises(UserError, match=message):
        update(agent_that(change))


def test_an_array_that_no_checkpoint_would_hold_is_an_error() -> None:
    agent = agent_that(averages_in_an_array)
    agent.mean = np.zeros(1)
    with pytest.raises(UserError, match=r"update_step changes self\.mean, an array that no checkpoint would hold"):
        update(agent)


def counts_in_a_dictionary(agent: Any, metrics: dict[str, Any]) -> None:
    agent.stats["calls"] += 1


def counts_in_a_list(agent: Any, metrics: dict[str, Any]) -> None:
    agent.stats.append(0.5)


@pytest.mark.parametrize(
    ("change", "attributes", "named"),
    [
        (counts_itself, {"calls": 0}, "calls"),
        (counts_itself, {}, "calls"),
        (counts_in_a_dictionary, {"stats": {"calls": 0}}, "stats['calls']"),
        (counts_in_a_list, {"stats": []}, "stats[0]"),
    ],
)
def test_a_counter_in_the_update_step_is_an_error(change: Change, attributes: dict[str, Any], named: str) -> None:
    agent = agent_that(change)
    vars(agent).update(attributes)
    message = rf"update_step changes self\.{re.escape(named)}, a Python number, which .* would freeze"
    with pytest.raises(UserError, match=message):
        update(agent)


@pytest.mark.parametrize("first", [None, 0.0])
def test_a_tensor_that_the_update_step_creates_is_an_error(first: float | None) -> None:
    def averages(agent: Any, metrics: dict[str, Any]) -> None:
        agent.mean = 0.9 * (getattr(agent, "mean", None) or 0.0) + 0.1 * metrics["train_critic/loss"]

    agent = agent_that(averages)
    if first is not None:
        agent.mean = first
    with pytest.raises(UserError, match=r"update_step changes self\.mean, a tensor that no checkpoint would hold"):
        update(agent)


def test_what_a_cached_property_computes_is_no_state() -> None:
    class Caches(SACAgent):
        @cached_property
        def scale(self) -> float:
            return float(np.sqrt(self.action_dim))

    def reads(agent: Any, metrics: dict[str, Any]) -> None:
        metrics["train/scaled"] = metrics["train_critic/loss"] * agent.scale

    agent = agent_that(reads)
    agent.__class__ = Caches
    update(agent)
    assert "scale" in vars(agent)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_tensor_that_no_checkpoint_would_hold_is_an_error(in_place: bool) -> None:
    def averages(agent: Any, metrics: dict[str, Any]) -> None:
        loss = metrics["train_critic/loss"]
        agent.mean = agent.mean.lerp_(loss, 0.1) if in_place else agent.mean.lerp(loss, 0.1)

    agent = agent_that(averages)
    agent.mean = torch.zeros(())
    with pytest.raises(UserError, match=r"update_step changes self\.mean, a tensor that no checkpoint would hold"):
        update(agent)


@pytest.mark.parametrize("execution", ["recorded", "captured"])
def test_a_weight_that_is_annealed_from_outside_is_found_out(
    execution: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit compares the tenth replay; from there on every update runs eagerly."""

    def weighs(agent: Any, metrics: dict[str, Any]) -> None:
        metrics["train/weighed"] = agent.weight * metrics["train_critic/loss"]

    plain, replayed = agent_that(weighs), agent_that(weighs, execution)
    for agent in (plain, replayed):
        agent.weight = 1.0
    expected = update(plain, 40, lambda step: setattr(plain, "weight", 0.9**step))
    assert capsys.readouterr().out == ""
    found = update(replayed, 40, lambda step: setattr(replayed, "weight", 0.9**step))
    said = capsys.readouterr().out
    assert said.startswith("Updates run eagerly from here on: train/weighed is not what it would be without execution=")
    assert said.count("\n") == 1
    wrong = [step for step in range(40) if found[step]["train/weighed"] != expected[step]["train/weighed"]]
    assert wrong and max(wrong) < 20
    assert found[-1] == expected[-1]


def test_replays_that_freeze_nothing_are_compared_and_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    plain, recorded = agent_that(), agent_that(execution="recorded")
    assert update(plain, 120) == update(recorded, 120)
    assert recorded.execution._audit._replays > 100 and recorded.execution._enabled
    assert capsys.readouterr().out == ""


def test_what_is_forgotten_is_an_error_that_names_it() -> None:
    agent = agent_that()
    agent.extra = nn.Linear(2, 2)
    with pytest.raises(
        UserError, match=r"SACAgent: self\.extra has parameters that no optimizer steps; .*add_optimizer"
    ):
        update(agent)
    agent.add_optimizer("extra", agent.extra, 1e-3)
    with pytest.raises(UserError, match=r"update_step never steps the optimizer 'extra'; give step_optimizers a loss"):
        update(agent)
    agent = agent_that()
    agent.members = [nn.Linear(2, 2)]
    with pytest.raises(UserError, match=r"SACAgent: self\.members holds parts with a state in a list, .*ModuleList"):
        update(agent)
    agent = agent_that()
    del agent.actor
    with pytest.raises(UserError, match=r"SACAgent: its constructor builds no self\.actor, which is what acts"):
        agent.act(make_batch(1).obs.numpy())


def test_a_first_value_that_is_not_finite_stops_the_run() -> None:
    with pytest.raises(RunError, match=r"^SACAgent\.update_step: in the first update, train_critic/loss is inf$"):
        update(agent_that(divides_by_zero))


@pytest.mark.parametrize("returned", [None, {}])
def test_a_part_of_the_update_that_returns_one_thing_is_an_error(returned: Any) -> None:
    class Changed(SACAgent):
        def _update_critic(self, *arguments: Any) -> Any:
            super()._update_critic(*arguments)
            return returned

    agent = agent_that()
    agent.__class__ = Changed
    kind = type(returned).__name__
    with pytest.raises(UserError, match=rf"Changed: _update_critic returns a {kind}; return metrics, histogram_inputs"):
        update(agent)


def test_a_module_on_another_device_is_an_error() -> None:
    agent = agent_that()
    agent.extra = nn.Linear(2, 2, device="meta").requires_grad_(False)
    message = r"SACAgent: self\.extra is on the meta, and the agent on the cpu; add \.to\(self\.device\)"
    with pytest.raises(UserError, match=message):
        update(agent)


def test_a_matrix_that_is_meant_is_none() -> None:
    def compares_all(agent: Any, metrics: dict[str, Any]) -> None:
        batch = make_batch(32)
        values = agent.critic(*batch[:2])[0].detach()
        metrics["train/spread"] = (values[:, 0][None] - values).square().mean()
        metrics["train/pixels"] = (torch.arange(32) + torch.arange(32)[:, None]).float().mean()
        metrics["train/product"] = torch.addmm(torch.ones(32), values, values.T).mean()

    update(agent_that(compares_all))


class Holder:
    def __init__(self, module: nn.Module) -> None:
        self.module = module


@pytest.mark.parametrize("name", ["_members", "members", "holder"])
def test_weights_that_no_checkpoint_would_hold_are_an_error(name: str) -> None:
    agent, module = agent_that(), nn.Linear(2, 2)
    setattr(agent, name, {"_members": [module], "members": {"a": [module]}, "holder": Holder(module)}[name])
    agent.add_optimizer("extra", module, 1e-3)
    with pytest.raises(UserError, match=r"SACAgent: the optimizer 'extra' steps weights that no checkpoint would hold"):
        update(agent)


def test_parts_with_a_state_in_a_list_are_an_error() -> None:
    agent = agent_that()
    agent.more = [Schedules(beta=Linear(0.0, 1.0, 50))]
    with pytest.raises(
        UserError, match=r"SACAgent: self\.more holds parts with a state in a list, .*each an attribute"
    ):
        update(agent)


@pytest.mark.parametrize("generator", [torch.Generator(), np.random.default_rng(1), [random.Random(1)]])
def test_a_generator_that_no_checkpoint_would_hold_is_an_error(generator: Any) -> None:
    agent = agent_that()
    agent.own_rng = generator
    with pytest.raises(UserError, match=r"SACAgent: self\.own_rng is a generator .*draw from `noise` in update_step"):
        update(agent)


def test_a_bare_parameter_is_an_error() -> None:
    agent = agent_that()
    agent.logits = nn.Parameter(torch.zeros(3))
    with pytest.raises(
        UserError, match=r"add_optimizer\('logits', ...\): a torch.nn.Module goes here, not a Parameter"
    ):
        agent.add_optimizer("logits", agent.logits, 1e-3)
    with pytest.raises(UserError, match=r"SACAgent: self\.logits is a tensor that should learn"):
        update(agent)


def test_a_batch_that_the_step_changes_is_an_error() -> None:
    agent = agent_that()
    step = agent.update_step

    def shifted(batch: Any, noise: Any) -> Any:
        batch.obs.add_(1.0)
        return step(batch, noise)

    agent.update_step = shifted
    with pytest.raises(UserError, match=r"SACAgent\.update_step changes its batch in place"):
        update(agent)


def test_a_loss_that_would_move_the_weights_of_another_is_an_error() -> None:
    def steps(agent: Any, metrics: dict[str, Any]) -> None:
        batch = make_batch(32)
        values = agent.critic(batch.obs, agent.actor(batch.obs).mu.tanh()).mean()
        agent.step_optimizers(critic=agent.critic(*batch[:2]).mean(), actor=values)

    with pytest.raises(UserError, match=r"SACAgent: the loss 'actor' would also move the weights of 'critic'"):
        update(agent_that(steps))


def test_weights_that_their_loss_does_not_use_are_an_error() -> None:
    agent = agent_that(lambda agent, metrics: agent.step_optimizers(extra=agent.extra[0].weight.sum()))
    agent.extra = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    agent.add_optimizer("extra", agent.extra, 1e-3)
    with pytest.raises(UserError, match=r"SACAgent: the loss 'extra' does not use every weight that its optimizer"):
        update(agent)


def test_a_target_with_a_gradient_is_an_error() -> None:
    agent = agent_that()
    outputs = agent.critic.outputs(*make_batch(32)[:2])
    with pytest.raises(
        UserError, match=r"SACAgent: the critic's target has a gradient; compute it under torch.no_grad"
    ):
        agent.critic_loss(outputs, outputs.mean(0))


def test_convolutions_that_nothing_trains_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    build = OffPolicyAgent.build
    monkeypatch.setattr(OffPolicyAgent, "build", lambda self, factory, **_: build(self, factory))
    agent = make_agent("agent=drq", *SMALL, *TINY)
    with pytest.raises(UserError, match=r"SACAgent: no optimizer steps the convolutions, .* with learns_encoder=True$"):
        agent.draw_noise(make_batch(32, images=True))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda loss: {"actors": loss}, r"step_optimizers\(actors=.*\): 'actors' has no optimizer; use add_optimizer"),
        (lambda loss: {"actor": loss.expand(32, 1)}, r"the loss 'actor' has shape \(32, 1\); reduce it with mean\(\)"),
        (lambda loss: {"actor": loss.detach()}, r"the loss 'actor' has no gradient; compute it outside of no_grad"),
    ],
)
def test_a_loss_that_no_optimizer_can_step_on_is_named(loss: Callable[..., dict[str, Any]], message: str) -> None:
    def steps(agent: Any, metrics: dict[str, Any]) -> None:
        agent.step_optimizers(**loss(agent.actor(make_batch(32).obs).mu.mean()))

    with pytest.raises(UserError, match=f"^SACAgent: {message}"):
        update(agent_that(steps))


@pytest.mark.parametrize("shape", [(32,), (10, 32, 1), (1, 32)])
def test_a_target_that_a_loss_would_broadcast_is_an_error(shape: tuple[int, ...]) -> None:
    agent = agent_that()
    outputs = agent.critic.outputs(*make_batch(32)[:2])
    with pytest.raises(UserError, match=rf"target has shape {re.escape(str(shape))}; for outputs \(2, 32, 1\)"):
        agent.critic_loss(outputs, torch.zeros(shape))


def test_a_step_that_returns_its_metrics_alone_is_an_error() -> None:
    agent = agent_that()
    step = agent.update_step
    agent.update_step = lambda batch, noise: step(batch, noise)[0]
    with pytest.raises(UserError, match=r"update_step returns a dict; return metrics, histogram_inputs"):
        update(agent)


@pytest.mark.parametrize(
    ("column", "shape"), [("reward", (32,)), ("discount", (32,)), ("weight", (32, 1)), ("index", (32, 1))]
)
def test_a_column_that_losses_would_broadcast_is_an_error(column: str, shape: tuple[int, ...]) -> None:
    batch = WeightedBatch(*make_batch(32), torch.ones(32), torch.arange(32))
    batch = batch._replace(**{column: getattr(batch, column).reshape(shape)})
    with pytest.raises(UserError, match=rf"batch\.{column} has shape {re.escape(str(shape))}; \(32,.*\) is needed"):
        agent_that().draw_noise(batch)


def test_noise_is_asked_for_in_one_order() -> None:
    agent, batch = agent_that(), make_batch(32)
    noise = agent.draw_noise(batch)
    agent.update_step = lambda batch, noise: ({}, {"q": noise.normal(3)})
    with pytest.raises(UserError, match=r"asked for noise\.normal\(3,\), and for \(32, 6\) in its place"):
        agent.compute_update(batch, noise)


def test_a_state_that_is_found_goes_on() -> None:
    """A module that an author adds is saved and loaded without further code."""
    agents = [make_agent(*SMALL) for _ in range(2)]
    for agent in agents:
        agent.extra = nn.Linear(2, 2).requires_grad_(False)
    agents[1].load_state_dict(agents[0].snapshot())
    assert torch.equal(agents[0].extra.weight, agents[1].extra.weight)
    assert "frozen_critic" not in agents[0].state_dict() and "frozen_critic" not in agents[0].modules
    update(agents[0])
