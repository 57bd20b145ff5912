"""What of an off-policy agent acts: its newest weights in training, and what is evaluated and saved of it."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent.averaging import ActorAverage
from agent.execution.views import evaluation_view
from agent.policy import Policy
from agent.policy_file import save_policy
from utils import UserError


class Acts:
    """Acting with `self.actor`, or outside of training with the average of its weights where there is one.

    Attributes:
        actor_average: see agent.averaging; None is that the newest weights are evaluated and saved.
    """

    actor: Any
    critic: Any  # where there is one
    action_range: tuple[float, float]
    device: torch.device
    training: bool
    observation_normaliser: Any
    exploration: Any
    actor_average_share: float
    actor_average: ActorAverage | None

    @cached_property
    def policy(self) -> Policy:
        """What is evaluated and saved: the actor in evaluation mode, whatever the agent's mode, or its average."""
        if getattr(self, "actor", None) is None:
            raise UserError(f"{type(self).__name__}: its constructor builds no self.actor, which is what acts")
        if self.actor_average_share and self.actor_average is None:
            raise UserError(
                f"agent.actor_average_share={self.actor_average_share}: {type(self).__name__} gives self.actor no "
                "optimizer of its own, after whose steps it would be averaged; leave it at 0"
            )
        # Its own generator, so that nothing else that draws (an environment, an evaluation) shifts the noise.
        generator = torch.Generator(self.device).manual_seed(torch.initial_seed())
        actor = evaluation_view(self.actor) if self.actor_average is None else self.actor_average.network
        return self._policy_of(actor, generator)

    @property
    def newest_policy(self) -> Policy:
        """What acts in training: with the newest weights, and noise from the same generator."""
        average = self.actor_average
        if average is None:
            return self.policy
        if average.newest is None:
            average.newest = self._policy_of(evaluation_view(self.actor), self.policy.generator)
        return average.newest

    def _policy_of(self, actor: Any, generator: torch.Generator) -> Policy:
        """With a critic where choosing takes one."""
        critic = None if actor.acts_alone else evaluation_view(self.critic)
        return Policy(actor, self.action_range, self.device, generator, critic, self.observation_normaliser)

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        if self.training:
            return self.newest_policy.act(obs, sample, self.exploration)
        return self.policy.act(obs, sample)

    def save_policy(self, path: Path) -> None:
        """Writes the policy alone (see agent.policy_file.load_policy), the critic with it where acting asks it."""
        save_policy(self.policy, path)
