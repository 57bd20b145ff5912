"""Copies of a module that follow it: views that share its weights, as constants or in evaluation mode; and an average.

A view sees every later change in place, such as an optimizer's step or `load_state_dict`. It has no state to save and
nothing to learn, so an agent leaves it out of its modules.
"""

import copy
from typing import Any

import torch
from torch import nn

from agent.toolkit.hooks import AfterStep


def frozen_view(module: nn.Module) -> Any:
    """Returns a view with constant parameters: gradients flow through it to its inputs, and none reach its weights."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in module.buffers()}
    for parameter in module.parameters():
        shared[id(parameter)] = torch.nn.Parameter(parameter.detach(), requires_grad=False)
    return _view(module, shared)


def evaluation_view(module: nn.Module) -> Any:
    """Returns a view that stays in evaluation mode, whatever the module's mode."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return _view(module, shared).eval()


def is_view(value: Any) -> bool:
    return getattr(value, "is_view_of_another", False)


def _view(module: nn.Module, shared: dict[int, Any]) -> Any:
    view: Any = copy.deepcopy(module, shared)
    view.is_view_of_another = True
    return view


class ActorAverage:
    """The mean of an actor's weights: average <- average + share * (weights - average) after each of its updates.

    Noisy gradient steps scatter the weights around a good actor, and their mean is closer to it (Polyak and Juditsky
    1992; for networks arXiv 1803.05407). It is evaluated and saved; training uses the newest weights.

    In the first 1 / share updates, it is the plain mean of the weights after each update, so the initial weights do not
    dominate it. Running statistics of batch normalisation are averaged like weights. Layers that change their weights
    after a step (AfterStep: unit lengths) do the same to the average.
    """

    def __init__(self, actor: nn.Module, share: float):
        self.network: Any = copy.deepcopy(actor).requires_grad_(False).eval()
        self.newest: Any = None  # the policy of the newest weights, built when it is first needed
        self._share = share
        tensors = ([*module.parameters(), *module.buffers()] for module in (self.network, actor))
        pairs = list(zip(*tensors, strict=True))
        self._averaged = [(average, newest) for average, newest in pairs if newest.is_floating_point()]
        self._copied = [(copied, newest) for copied, newest in pairs if not newest.is_floating_point()]
        self._after_step = [layer for layer in self.network.modules() if isinstance(layer, AfterStep)]
        self._num_updates = torch.zeros((), device=pairs[0][0].device)  # a tensor: recorded updates increment it

    @torch.no_grad()
    def follow(self) -> None:
        """Updates the average; called after each update of the actor and of its running statistics."""
        self._num_updates += 1
        share = self._num_updates.reciprocal().clamp_(min=self._share)
        for average, newest in self._averaged:
            average.lerp_(newest, share)
        for copied, newest in self._copied:
            copied.copy_(newest)
        for layer in self._after_step:
            layer.after_step()

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "num_updates": self._num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self._num_updates.copy_(state["num_updates"])
