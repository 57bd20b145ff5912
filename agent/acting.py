"""Acting with an actor: with its newest weights in training, with their average (agent.averaging) elsewhere."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent.averaging import ActorAverage
from agent.components import Components, LearningRate
from agent.policy import Policy
from agent.policy_file import save_policy
from agent.toolkit.frozen import evaluation_view
from settings.types import Betas, NonNegativeFloat, UnitInterval
from utils import UserError


class ActingAgent(Components):
    """An agent that acts with `self.actor`.

    Args:
        actor_average_share: step size of the moving average of the actor's weights; 0: no average.

    Attributes:
        actor_average: None without an average; the newest weights are then evaluated and saved.
    """

    actor: Any
    critic: Any  # if the agent has one
    action_range: tuple[float, float]
    device: torch.device
    observation_normaliser: Any
    exploration: Any

    def __init__(self, actor_average_share: UnitInterval) -> None:
        super().__init__()
        self.actor_average_share = actor_average_share
        self.actor_average: ActorAverage | None = None

    def add_optimizer(
        self,
        name: str,
        module: torch.nn.Module,
        lr: LearningRate,
        betas: Betas = (0.9, 0.999),
        weight_decay: NonNegativeFloat = 0.0,
    ) -> None:
        super().add_optimizer(name, module, lr, betas, weight_decay)
        if self.actor_average_share and module is getattr(self, "actor", None):
            self.actor_average = ActorAverage(module, self.actor_average_share)
            self._after_update[name] = self.actor_average.follow

    @cached_property
    def policy(self) -> Policy:
        """The policy that is evaluated and saved: the actor, or its average, in evaluation mode."""
        if getattr(self, "actor", None) is None:
            raise UserError(f"{type(self).__name__}: its constructor builds no self.actor, which is what acts")
        if self.actor_average_share and self.actor_average is None:
            raise UserError(
                f"agent.actor_average_share={self.actor_average_share}: {type(self).__name__} gives self.actor no "
                "optimizer of its own, after whose steps it would be averaged; leave it at 0"
            )
        # A separate generator, so that other random draws (an environment's, an evaluation's) do not shift the noise.
        generator = torch.Generator(self.device).manual_seed(torch.initial_seed())
        actor = evaluation_view(self.actor) if self.actor_average is None else self.actor_average.network
        return self._policy_of(actor, generator)

    @property
    def newest_policy(self) -> Policy:
        """The policy that acts in training: the newest weights, with noise from the generator of `policy`."""
        average = self.actor_average
        if average is None:
            return self.policy
        if average.newest is None:
            average.newest = self._policy_of(evaluation_view(self.actor), self.policy.generator)
        average.newest.generator = self.policy.generator  # `sampling` replaces it for a while
        return average.newest

    def _policy_of(self, actor: Any, generator: torch.Generator) -> Policy:
        """Returns a policy, with the critic if greedy actions need it."""
        critic = None if actor.acts_alone else evaluation_view(self.critic)
        return Policy(actor, self.action_range, self.device, generator, critic, self.observation_normaliser)

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        if self.training:
            return self.newest_policy.act(obs, sample, self.exploration)
        return self.policy.act(obs, sample)

    def save_policy(self, path: str | Path) -> None:
        """Writes the policy alone, with the critic if greedy actions need it (see agent.policy_file.load_policy)."""
        save_policy(self.policy, path)
