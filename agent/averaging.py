"""The average of an actor's weights over its updates, which is evaluated and saved in the place of the newest ones.

An actor's last steps move it about what they have found; their mean is nearer to it (Polyak and Juditsky 1992; of
networks arXiv 1803.05407). Training does not know of the average: acting and updates have the newest weights.
"""

import copy
from typing import Any

import torch
from torch import nn

from agent.execution.parts import AfterStep
from agent.found import parts
from agent.policy import Policy


class ActorAverage:
    """A copy of an actor that follows it: average <- average + share * (weights - average) after each of its updates.

    The first 1 / share updates have their plain mean, in which the weights of the start are no more than any others.
    The running statistics of a normalisation are averaged with the weights, and what an actor does to its weights after
    a step, such as putting them back to unit length, is done to their average.

    Args:
        actor: whose average it is; its tensors change in place.
        share: of the newest weights in the average, above 0.

    Attributes:
        network: the average, a module in evaluation mode.
        newest: what acts in training, once it has been asked for.
    """

    def __init__(self, actor: nn.Module, share: float):
        self.network: Any = copy.deepcopy(actor).requires_grad_(False).eval()
        self.newest: Policy | None = None
        self._share = share
        pairs = list(zip(_tensors(self.network), _tensors(actor), strict=True))
        self._averaged = [(average, newest) for average, newest in pairs if newest.is_floating_point()]
        self._counts = [(ours, theirs) for ours, theirs in pairs if not theirs.is_floating_point()]
        self._after_step = parts([self.network], AfterStep)
        self._num_updates = torch.zeros((), device=pairs[0][0].device)  # a tensor: recorded updates count it too

    @torch.no_grad()
    def follow(self) -> None:
        """Called after each update of the actor, and after its statistics have followed their batch."""
        self._num_updates += 1
        share = self._num_updates.reciprocal().clamp_(min=self._share)
        for average, newest in self._averaged:
            average.lerp_(newest, share)
        for ours, theirs in self._counts:
            ours.copy_(theirs)
        for part in self._after_step:
            part.after_step()

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "num_updates": self._num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self._num_updates.copy_(state["num_updates"])


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]
