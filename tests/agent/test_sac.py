"""SAC's update against an independent computation, and what its state must carry."""

import copy
import inspect
from typing import Any

import composed
import pytest
import torch
from agents import ACTION_DIM, SMALL, Always, Given, Silent, make_agent, make_batch
from formulas import Network, SoftActorCritic, batches, mlp, policy

from agent.crossq import CrossQAgent
from agent.sac import SACAgent
from agent.sac_discrete import SACDiscreteAgent
from agent.soft_actor import SoftActor
from replay_buffer import Batch

GAMMA, TAU, LR = 0.99, 0.005, 1e-4


def small_agent(*overrides: str) -> Any:
    return make_agent(*SMALL, *overrides)


def noise(size: int) -> torch.Tensor:
    return torch.randn(size, ACTION_DIM)


def soft_limited(log_std: torch.Tensor) -> torch.Tensor:
    return -5 + 3.5 * (torch.tanh(log_std) + 1)  # to [-5, 2]


class Sac(SoftActorCritic):
    """The critics step first; then actor and temperature in every third update, and the targets in every second."""

    def q(self, critics: Network, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.stack([critic(torch.cat([obs, action], 1))[:, 0] for critic in critics.members()])  # (N, B)

    def update(self, batch: Batch, eps: torch.Tensor, more: torch.Tensor, count: int) -> dict[str, torch.Tensor]:
        alpha, found = self.alpha(), {}
        with torch.no_grad():
            next_action, next_log_prob = policy(self.actor, batch.next_obs, eps, soft_limited)
            next_q = self.q(self.slow, batch.next_obs, next_action).min(0).values
            y = 3 * batch.reward[:, 0] + GAMMA * batch.discount[:, 0] * (next_q - alpha * next_log_prob)
        found["train_critic/loss"] = ((self.q(self.critic, batch.obs, batch.action) - y) ** 2).mean(1).sum()
        self.adams["critic"].step(found["train_critic/loss"], LR)
        if count % 3 == 0:
            action, log_prob = policy(self.actor, batch.obs, more, soft_limited)
            found["train_actor/loss"] = (alpha * log_prob - self.q(self.critic, batch.obs, action).min(0).values).mean()
            found["train_actor/entropy"] = -log_prob.detach().mean()
            error = found["train_actor/entropy"] + ACTION_DIM
            found["train_alpha/loss"] = torch.exp(self.temperature["log"]) * error
            self.adams["actor"].step(found["train_actor/loss"], LR)
            self.adams["alpha"].step(found["train_alpha/loss"], LR)
        if count % 2 == 0:
            self.move_slow(TAU)
        return found


@pytest.mark.usefixtures("float64")
def test_fifty_updates_are_those_of_the_formulas() -> None:
    """arXiv 1812.05905, (5) to (7) and (18)"""
    every = ("agent.actor_update_frequency=3", "agent.critic_target_update_frequency=2")
    agent = small_agent(*every, "agent.critic.num_critics=4", "reward_scale=3")
    expected = Sac(agent, mlp)
    for count, (batch, eps, more) in enumerate(batches(50, 32)):
        agent.noise = Given(eps, more)
        agent.update(Always(batch), log := Silent(), count)
        for key, value in expected.update(batch, eps, more, count).items():
            assert log.values[key] == pytest.approx(value.item(), rel=1e-9, abs=1e-9)
    expected.assert_same(agent)
    assert expected.adams["alpha"].count == 17


@pytest.mark.parametrize("name", ["sac", "crossq"])
def test_histograms_are_of_what_the_update_saw(name: str) -> None:
    agent, before = (small_agent(f"agent={name}", "agent.actor_update_at=first") for _ in range(2))
    batch, eps = make_batch(32), noise(32)
    _, seen = agent.update_step(batch, Given(eps, eps))
    policy = before.actor(batch.obs)
    assert seen.keys() == {"q", "mu", "log_std"}
    torch.testing.assert_close(seen["mu"], policy.mu.detach())
    torch.testing.assert_close(seen["log_std"], policy.log_std.detach())
    if name == "sac":
        torch.testing.assert_close(seen["q"], before.critic(batch.obs, batch.action).detach())
    assert seen["q"].shape == (2, 32, 1) and not any(tensor.requires_grad for tensor in seen.values())  # type: ignore[attr-defined]


def test_a_deep_copy_is_refused() -> None:
    """The views of its networks would show weights that no longer change."""
    with pytest.raises(TypeError, match=r"load this one's state_dict\(\)$"):
        copy.deepcopy(make_agent())


def test_each_optimizer_has_its_own_numbers() -> None:
    asked = {"actor": (0.1, [0.2, 0.3], 0.4), "critic": (0.5, [0.6, 0.7], 0.8), "alpha": (0.9, [0.15, 0.25], 0.0)}
    keys = [f"agent.{name}_{key}={asked[name][i]}" for name in asked for i, key in enumerate(("lr", "betas"))]
    optimizers = small_agent(*keys, "agent.actor_weight_decay=0.4", "agent.critic_weight_decay=0.8").optimizers
    constants = {name: (adam._known_lr, adam._constants) for name, adam in optimizers.items()}
    assert asked == {name: (lr, [c["beta1"], c["beta2"]], c["weight_decay"]) for name, (lr, c) in constants.items()}


@pytest.mark.parametrize(
    ("agent", "name"),
    [(SoftActor, "sac"), (SACAgent, "sac"), (CrossQAgent, "crossq"), (SACDiscreteAgent, "sac_discrete")],
)
def test_defaults_for_use_as_a_library_are_the_yamls(agent: type, name: str) -> None:
    node = composed.settings(f"agent={name}").agent
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(agent.__init__).parameters.items()  # type: ignore[misc]
        if parameter.default is not inspect.Parameter.empty
    }
    assert defaults and defaults == {key: node[key] for key in defaults}


def test_an_unlearnable_temperature_stays() -> None:
    agent = small_agent("agent.learnable_temperature=false", "agent.init_temperature=0.3")
    metrics, _ = agent.update_step(make_batch(32), Given(noise(32), noise(32)))
    assert agent.temperature().item() == pytest.approx(0.3)
    assert "train_alpha/loss" not in metrics


def test_what_is_shown_of_alpha_is_what_the_update_went_by() -> None:
    agent = small_agent("agent.temperature.form=direct", "agent.init_temperature=0.3", "agent.alpha_lr=0.1")
    metrics, _ = agent.update_step(make_batch(32), Given(noise(32), noise(32)))
    assert metrics["train_alpha/value"].item() == pytest.approx(0.3)
    assert abs(agent.alpha.item() - 0.3) > 0.05  # alpha itself is the parameter, and it has stepped


def test_numbers_on_a_schedule_follow_the_step_and_survive_a_restart() -> None:
    linear = "{_target_: agent.schedule.Linear, start: 1e-3, final: 0, steps: 100}"
    overrides = (f"agent.critic_lr={linear}", f"agent.discount={linear}", f"agent.init_temperature={linear}")
    agent, other = (small_agent("agent/temperature=fixed", *overrides) for _ in range(2))
    agent.update(Always(make_batch(32)), Silent(), 75)
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    for restored in (agent, other):
        assert restored.optimizers["critic"].lr.item() == pytest.approx(2.5e-4)
        assert restored.schedules.discount == pytest.approx(2.5e-4)
        assert restored.temperature().item() == pytest.approx(2.5e-4)
