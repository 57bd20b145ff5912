"""Checks what an agent's constructor made, before its first update: that all weights learn and are saved."""

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from utils import UserError, leaves

GENERATORS = torch.Generator, np.random.Generator, np.random.RandomState, random.Random


def require_optimizers(agent: Any, name: str) -> None:
    """Raises UserError for weights that would not learn, or that no checkpoint would hold."""
    for attribute, value in vars(agent).items():
        for _, item in [("", value), *items(value)]:
            if isinstance(item, torch.Tensor) and item.requires_grad:
                raise UserError(
                    f"{name}: self.{attribute} is a tensor that should learn; put it into a torch.nn.Module, which can "
                    "have an optimizer"
                )
            if isinstance(item, GENERATORS):
                raise UserError(
                    f"{name}: self.{attribute} is a generator of random numbers, whose state no checkpoint would hold; "
                    "draw from `noise` in update_step, and elsewhere keep it in an object with state_dict and "
                    "load_state_dict"
                )
        is_internal = attribute.startswith("_") or attribute in ("optimizers", "optimized")
        if not is_internal and any(hasattr(item, "load_state_dict") for _, item in items(value)):
            raise UserError(
                f"{name}: self.{attribute} holds parts with a state in a {type(value).__name__}, where they are not "
                "found; make each an attribute, or put modules into a torch.nn.ModuleList or ModuleDict"
            )
    learned = {id(parameter) for optimizer in agent.optimizers.values() for parameter in optimizer.parameters}
    held = {value.data_ptr() for _, value in leaves(agent.state_dict()) if isinstance(value, torch.Tensor)}
    for key, optimizer in agent.optimizers.items():
        if any(parameter.data_ptr() not in held for parameter in optimizer.parameters):
            raise UserError(
                f"{name}: the optimizer {key!r} steps weights that no checkpoint would hold; make their module an "
                "attribute of the agent, and a list of modules a torch.nn.ModuleList"
            )
    for attribute, module in agent.modules.items():
        _require_device(agent, name, attribute, module)
        if any(parameter.requires_grad and id(parameter) not in learned for parameter in module.parameters()):
            raise UserError(
                f"{name}: self.{attribute} has parameters that no optimizer steps; give it one with add_optimizer, or "
                "call requires_grad_(False) on it, as on a target network"
            )
    convolutions = agent.observations.learned
    if convolutions is not None and not any(id(parameter) in learned for parameter in convolutions.parameters()):
        raise UserError(
            f"{name}: no optimizer steps the convolutions, which would stay random; build the network that trains "
            "them, such as the critic, with learns_encoder=True"
        )


def _require_device(agent: Any, name: str, attribute: str, module: torch.nn.Module) -> None:
    """Raises UserError for a module that is not on the agent's device."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device.type != agent.device.type:
            raise UserError(
                f"{name}: self.{attribute} is on the {tensor.device.type}, and the agent on the {agent.device.type}; "
                "add .to(self.device)"
            )


def items(value: Any) -> Iterable[tuple[Any, Any]]:
    """Returns what a dictionary, list or tuple holds, with its keys or indices."""
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()
