import math

import formulas
import pytest
import torch
from agents import make_agent

from agent import losses
from agent.schedule import Cosine, Exponential, Linear, Piecewise, Schedules
from agent.temperature import ExponentialTemperature, FixedTemperature, LearnedTemperature
from utils import UserError


@pytest.mark.parametrize(
    ("form", "start", "gradient"),
    [
        ("exp", 0.5, 0.5 * -2.0),  # d/d log alpha of alpha * error
        ("log", 0.5, -2.0),  # d/d log alpha of log alpha * error
        ("direct", 0.5, -2.0),  # d/d alpha of alpha * error
    ],
)
def test_what_is_learned_and_what_multiplies(form: str, start: float, gradient: float) -> None:
    temperature = LearnedTemperature(start, form)  # type: ignore[arg-type]
    assert temperature().item() == pytest.approx(start)
    log_prob = torch.tensor([[3.0]])  # entropy -3, target -1: the error is -2
    losses.temperature_loss(temperature.multiplier(), -log_prob.mean(), -1.0).backward()
    assert temperature.parameter.grad is not None
    assert temperature.parameter.grad.item() == pytest.approx(gradient)


def test_a_direct_alpha_stays_at_0_or_above() -> None:
    temperature = LearnedTemperature(0.0, "direct")
    with torch.no_grad():
        temperature.parameter.sub_(1.0)
    temperature.after_step()
    assert temperature().item() == 0.0
    with pytest.raises(UserError, match="init_temperature=0"):
        LearnedTemperature(0.0, "exp")


def test_fixed_is_the_number_itself() -> None:
    temperature = FixedTemperature(0.2)
    temperature.set_step(10**6)
    assert temperature().item() == pytest.approx(0.2)  # and not exp(0.2)
    assert list(temperature.parameters()) == []


def test_exponential_falls_from_start_to_final() -> None:
    temperature = ExponentialTemperature(1.0, final=0.01, decay=35_000)
    assert temperature().item() == 1.0
    temperature.set_step(35_000)
    assert temperature().item() == pytest.approx(0.01 + 0.99 / math.e)


def test_schedules() -> None:
    assert [Linear(1, 0, 10)(step) for step in (0, 5, 10, 99)] == [1, 0.5, 0, 0]
    cosine = [Cosine(3.0, 1.0, 12)(step) for step in (0, 3, 4, 6, 8, 12, 99)]
    assert cosine == pytest.approx([3.0, 2 + math.sqrt(0.5), 2.5, 2.0, 1.5, 1.0, 1.0])
    assert Exponential(3, 1, 2)(2) == pytest.approx(1 + 2 / math.e)
    piecewise = Piecewise([(10, 1.0), (20, 3.0), (20, 5.0), (30, 0.0)])
    assert [piecewise(step) for step in (0, 10, 15, 20, 25, 30, 99)] == [1, 1, 2, 5, 2.5, 0, 0]
    falling = Piecewise([(20, 5.0), (20, 1.0), (0, 5.0)])  # points of one step keep their order
    assert [falling(step) for step in (0, 10, 19, 20, 99)] == [5, 5, 5, 1, 1]


def test_numbers_on_schedules() -> None:
    schedules = Schedules(constant=0.5, falling=Linear(1, 0, 100))
    schedules.set_step(25)
    assert (schedules.constant, schedules.falling) == (0.5, 0.75)
    other = Schedules(constant=0.5, falling=Linear(1, 0, 100))
    other.load_state_dict(schedules.state_dict())
    assert other.falling == 0.75
    schedules.add(rising=Linear(0, 1, 100))
    assert schedules.rising == 0.25
    assert schedules.changing == ["falling", "rising"]
    with pytest.raises(AttributeError):
        _ = schedules.missing


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("use_log_entropy", [True, False])
def test_fifty_updates_with_the_fixed_coefficient_of_the_library(use_log_entropy: bool) -> None:
    """The library's alpha is exp(entropy_coeff) if `use_log_entropy` is true, else entropy_coeff (docs/SYSTEMS.md)."""
    coefficient = 0.3 if not use_log_entropy else -1.2
    alpha = math.exp(coefficient) if use_log_entropy else coefficient
    rates = [f"agent.{name}=3e-4" for name in ("actor_lr", "critic_lr")]
    narrow = ("agent.critic.hidden_dim=12", "agent.actor.hidden_dim=12", "agent.critic_target_update_frequency=1")
    fixed = ("agent/temperature=fixed", f"agent.init_temperature={alpha!r}")
    agent = make_agent(*fixed, *rates, *narrow, "agent.batch_size=16", "agent.actor.log_std_bounds=[-10,2]")

    modules = (agent.actor, agent.critic, agent.critic_target)
    actor, critic, slow = (formulas.Network.of(module.trunk, formulas.mlp) for module in modules)
    actor_adam, critic_adam = formulas.Adam(actor.weights), formulas.Adam(critic.weights)

    def minimum(net: formulas.Network, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.minimum(*(q(torch.cat([obs, action], 1))[:, 0] for q in net.members()))

    for batch, eps, more in formulas.batches(50, rows=16):
        formulas.update(agent, batch, eps, more)
        with torch.no_grad():
            next_action, next_log_prob = formulas.policy(actor, batch.next_obs, eps, formulas.soft_limited)
            next_value = minimum(slow, batch.next_obs, next_action) - alpha * next_log_prob
            y = batch.reward[:, 0] + 0.99 * batch.discount[:, 0] * next_value
        pairs = torch.cat([batch.obs, batch.action], 1)
        critic_adam.step(torch.stack([((q(pairs)[:, 0] - y) ** 2).mean() for q in critic.members()]).sum(), 3e-4)
        action, log_prob = formulas.policy(actor, batch.obs, more, formulas.soft_limited)
        actor_adam.step((alpha * log_prob - minimum(critic, batch.obs, action)).mean(), 3e-4)
        for name, weight in critic.weights.items():
            slow.weights[name] = 0.995 * slow.weights[name].detach() + 0.005 * weight.detach()
    formulas.assert_same(agent.actor.trunk, actor)
    formulas.assert_same(agent.critic.trunk, critic)
