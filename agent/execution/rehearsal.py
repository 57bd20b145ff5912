"""The first update of a process, made once for show: with everything due, and everything put back after it.

It finds out what an update asks of the random generators, so that it can be drawn before each update, and it holds an
author to what a recorded or captured update needs, with an error that names what is wrong.
"""

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from agent.toolkit.noise import Plan, Rehearsed
from replay_buffer import Batch
from utils import UserError


class Rehearsal(NamedTuple):
    """What an update is when everything is due."""

    plan: Plan  # its random numbers
    metrics: set[str]  # their keys


def rehearse(agent: Any, batch: Any) -> Rehearsal:
    """Makes an update on a batch and undoes it.

    Args:
        agent: an OffPolicyAgent.
        batch: as its updates take them.

    Raises:
        UserError: if the update step, or what the constructor declared for it, is not as OffPolicyAgent asks.
    """
    name = type(agent).__name__
    _require_found(agent, name)
    kept, numbers, undrawn = agent.snapshot(), _numbers(agent), _global_generators(agent.device)
    writes = {key: adam.num_steps._version for key, adam in agent.optimizers.items()}  # a count that no GPU waits for
    weight = getattr(batch, "weight", None)
    try:
        plan, metrics = _update(agent, batch)
    except Exception as error:
        if isinstance(error, UserError) or weight is not None or _with_other_weights(agent, batch, kept) is None:
            raise
        raise UserError(
            f"{name}.update_step needs batch.weight, and the replay buffer's {type(batch).__name__} has none; choose a "
            "buffer with weights, or allow for None, as self.critic_loss(outputs, target, batch.weight) does"
        ) from error
    stepped = {key for key, adam in agent.optimizers.items() if adam.num_steps._version > writes[key]}
    changed = [key for key, value in _numbers(agent).items() if numbers.get(key, value) != value]
    if weight is not None:
        moments, others = _moments(agent), _with_other_weights(agent, batch, kept)
        if others is not None and torch.equal(moments, others):
            raise UserError(
                f"{name}.update_step ignores batch.weight, which the replay buffer gives its rows; use it, as "
                "self.critic_loss(outputs, target, batch.weight) does, or choose replay_buffer.ReplayBuffer"
            )
    agent.load_state_dict(kept)
    _require_metrics(metrics, name)
    if changed:
        raise UserError(
            f"{name}.update_step changes self.{changed[0]}, a Python number, which a recorded update would freeze; "
            "make it a tensor, put it on a schedule, or ask self.due(frequency)"
        )
    if not all(map(torch.equal, undrawn, _global_generators(agent.device))):
        raise UserError(
            f"{name}.update_step draws from torch's global generator; take random numbers from its argument, such as "
            "noise.normal(rows, width)"
        )
    for missing in agent.optimizers.keys() - stepped:
        raise UserError(
            f"{name}.update_step never steps the optimizer {missing!r}; give step_optimizers a loss of that name, or "
            "leave its add_optimizer out"
        )
    return Rehearsal(plan, set(metrics))


def _update(agent: Any, batch: Any) -> tuple[Plan, dict[str, torch.Tensor]]:
    """An update with everything due, of which the state stays: what it drew, and its metrics."""
    noise = Rehearsed(agent.device)
    parameters = [parameter for module in agent.modules.values() for parameter in module.parameters()]
    gradients = [parameter.grad for parameter in parameters]
    run, agent.run_update_step, agent.rehearsing = agent.run_update_step, agent.update_step, True
    agent.rehearse_parts()
    try:
        metrics, _ = agent.run_on(batch, noise)
    finally:
        agent.run_update_step, agent.rehearsing = run, False
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
    return noise.plan, metrics


def _with_other_weights(agent: Any, batch: Any, kept: dict[str, Any]) -> torch.Tensor | None:
    """The optimizers' moments after an update of the same rows and other weights; None if it fails."""
    count, weight = len(batch.obs), getattr(batch, "weight", None)
    other = np.ones(count) if weight is None else weight.cpu().numpy() + 1
    agent.load_state_dict(copy.deepcopy(kept))
    try:
        _update(agent, Batch(*batch[:5]).weighted(other, np.arange(count)))
    except Exception:
        return None
    return _moments(agent)


def _moments(agent: Any) -> torch.Tensor:
    states = [optimizer.state_dict() for optimizer in agent.optimizers.values()]
    return torch.cat([moment.flatten() for state in states for moment in state["first_moments"]])


def _require_found(agent: Any, name: str) -> None:
    """What learns has an optimizer, and lies where it is found."""
    for attribute, value in vars(agent).items():
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if not attribute.startswith("_") and any(isinstance(part, nn.Module) for part in inside):
            raise UserError(
                f"{name}: self.{attribute} holds modules in a {type(value).__name__}, where they are not found; use "
                "torch.nn.ModuleList or ModuleDict"
            )
    learned = {id(parameter) for optimizer in agent.optimizers.values() for parameter in optimizer.parameters}
    for attribute, module in agent.modules.items():
        if any(parameter.requires_grad and id(parameter) not in learned for parameter in module.parameters()):
            raise UserError(
                f"{name}: self.{attribute} has parameters that no optimizer steps; give it one with add_optimizer, or "
                "call requires_grad_(False) on it, as on a target network"
            )


def _require_metrics(metrics: dict[str, Any], name: str) -> None:
    for key, value in metrics.items():
        if not key.startswith(("train/", "train_")):
            raise UserError(f"{name}.update_step's metric {key!r}: the key has to begin with train/ or train_")
        if not isinstance(value, torch.Tensor):
            raise UserError(
                f"{name}.update_step's metric {key!r} is a Python number, which a recorded update would freeze; "
                "make it a tensor, such as torch.full_like(loss, number)"
            )
        if value.requires_grad or value.numel() != 1:
            raise UserError(f"{name}.update_step's metric {key!r}: a detached tensor of one element is needed")


def _global_generators(device: torch.device) -> list[torch.Tensor]:
    """The states of those of torch's generators that an update draws from where it names none."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _numbers(agent: Any) -> dict[str, float]:
    return {key: value for key, value in vars(agent).items() if isinstance(value, int | float)}
