"""Soft actor-critics with slow target critics."""

from typing import Any

from agent.critic import RandomSubset
from agent.networks.batch_norm import refuse_batch_norm
from agent.soft_actor import SoftActorAgent, UpdateOrder
from agent.toolkit.frozen import frozen_view
from settings.types import PositiveInt, Schedule, UnitInterval


class SlowTargetsAgent(SoftActorAgent):
    """An ensemble of critics with slow targets, a soft actor and a temperature.

    Args:
        critic_tau: step size of the target critics towards the critics, per target update.
        critic_target_update_frequency: updates between two target updates.
        num_target_critics: number of target critics per target, redrawn for every update; None: all.
        update_order: see SoftActorAgent.update_in_order.
        soft_actor: arguments of agent.soft_actor.SoftActorAgent.

    Raises:
        UserError: for more target critics than critics; for batch normalisation, which needs both ends of a transition
            in one batch (agent.crossq).
    """

    supports_prioritised_replay = True

    def __init__(
        self,
        critic_tau: UnitInterval | Schedule = 0.005,
        critic_target_update_frequency: PositiveInt = 2,
        num_target_critics: PositiveInt | None = None,
        update_order: UpdateOrder = "critic_first",
        **soft_actor: Any,
    ):
        super().__init__(**soft_actor)
        refuse_batch_norm(actor=self.actor, critic=self.critic)
        self.update_order: UpdateOrder = update_order
        self.critic_target = self.slow_copy(self.critic, critic_tau, critic_target_update_frequency)
        self.frozen_critic = frozen_view(self.critic)
        self.target_outputs = self.critic_target.outputs
        if num_target_critics is not None:
            self.target_outputs = RandomSubset(self.critic_target, num_target_critics)
