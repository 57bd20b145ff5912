"""Views of a module: the same weights as constants, or in evaluation mode.

A view is a separate module that shares another's memory: it sees every later change in place, such as an optimizer's
step or `load_state_dict`. It has no state to save and nothing to learn, so an agent leaves it out of its modules.
"""

import copy
from typing import Any

import torch
from torch import nn


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
