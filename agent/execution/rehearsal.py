"""Checks the first update and undoes it. Every process makes this rehearsal once, with everything due.

It shows which random numbers an update needs, so that they can be drawn before each update. It also checks the rules
that recorded and captured updates impose on an agent's code, with an error that names the mistake.
"""

import copy
import inspect
import random
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from agent.execution.broadcasts import NoBroadcasts
from agent.execution.constructed import items, require_optimizers
from agent.toolkit.noise import Plan, RehearsedNoise
from replay_buffer import Batch
from utils import RunError, UserError

OF_THE_LOOP = ("step", "episode", "episode_reward", "episode_length", "duration", "steps_per_second")  # its columns


class Rehearsal(NamedTuple):
    """The random numbers and the metrics of an update with everything due."""

    batch_size: int
    plan: Plan
    metrics: set[str]  # the keys


def rehearse(agent: Any, batch: Any) -> Rehearsal:
    """Makes an update on a batch, checks it, and restores the agent.

    Args:
        agent: an OffPolicyAgent.
        batch: the batch of the next update.

    Raises:
        UserError: if the constructor or the update step breaks a rule of OffPolicyAgent.
        RunError: if a metric is not finite.
    """
    name = type(agent).__name__
    require_optimizers(agent, name)
    _require_columns(batch)

    # Note the state before the update. Reading the version number of Adam's step count does not wait for a GPU.
    state, values, generators = copy.deepcopy(agent.state_dict()), _values(agent), _global_generators(agent.device)
    writes = {key: adam.num_steps._version for key, adam in agent.optimizers.items()}
    weight = getattr(batch, "weight", None)
    columns = [column for key in Batch._fields if isinstance(column := getattr(batch, key, None), torch.Tensor)]
    versions = [column._version for column in columns]
    try:
        plan, metrics = _update(agent, batch)
    except Exception as error:
        # If the update succeeds with weights, it failed because they were absent.
        if (
            isinstance(error, UserError)
            or weight is not None
            or _moments_with_other_weights(agent, batch, state) is None
        ):
            raise
        raise UserError(
            f"{name}.update_step needs batch.weight, and the replay buffer's {type(batch).__name__} has none; choose a "
            "buffer with weights, or allow for None, as self.critic_loss(outputs, target, batch.weight) does"
        ) from error

    if versions != [column._version for column in columns]:
        raise UserError(f"{name}.update_step changes its batch in place, which later updates read; make a new tensor")

    # See what the update changed, then whether other batch weights change its result, and restore the agent.
    stepped = {key for key, adam in agent.optimizers.items() if adam.num_steps._version > writes[key]}
    changed = {key: new for key, new in _values(agent).items() if key not in values or not new.equals(values[key])}
    if weight is not None:
        moments, other_moments = _moments(agent), _moments_with_other_weights(agent, batch, state)
        if other_moments is not None and torch.equal(moments, other_moments):
            raise UserError(
                f"{name}.update_step ignores batch.weight, which the replay buffer gives its rows; use it, as "
                "self.critic_loss(outputs, target, batch.weight) does, or choose replay_buffer.ReplayBuffer"
            )
    agent.load_state_dict(state)

    _require_metrics(metrics, name)
    require_finite_metrics(metrics, name)
    for key, new in changed.items():
        if isinstance(new.value, torch.Tensor | np.ndarray):
            kind = "a tensor" if isinstance(new.value, torch.Tensor) else "an array"
            raise UserError(
                f"{name}.update_step changes self.{key}, {kind} that no checkpoint would hold; make it a buffer "
                "of a torch.nn.Module"
            )
        raise UserError(
            f"{name}.update_step changes self.{key}, a Python number, which a recorded update would freeze; "
            "make it a buffer of a module, put it on a schedule, or ask self.due(frequency)"
        )
    if not all(map(torch.equal, generators, _global_generators(agent.device))):
        raise UserError(
            f"{name}.update_step draws from a global generator; take random numbers from its argument, such as "
            "noise.normal(rows, width)"
        )
    for missing in agent.optimizers.keys() - stepped:
        raise UserError(
            f"{name}.update_step never steps the optimizer {missing!r}; give step_optimizers a loss of that name, or "
            "leave its add_optimizer out"
        )
    return Rehearsal(agent.batch_size, plan, set(metrics))


def _update(agent: Any, batch: Any) -> tuple[Plan, dict[str, torch.Tensor]]:
    """Makes an update with everything due; restores only gradients afterwards; returns its draws and metrics."""
    noise = RehearsedNoise(agent.device)
    parameters = [parameter for module in agent.modules.values() for parameter in module.parameters()]
    gradients = [parameter.grad for parameter in parameters]
    agent.rehearsing = True
    agent.rehearse_draws()
    try:
        with NoBroadcasts(len(batch.action), f"{type(agent).__name__}.update_step"):
            metrics, _ = agent.compute_update(batch, noise)
    finally:
        agent.rehearsing = False
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
    return noise.plan, metrics


def _moments_with_other_weights(agent: Any, batch: Any, state: dict[str, Any]) -> torch.Tensor | None:
    """Returns Adam's first moments after an update from `state` on the same rows, reweighted; None if it fails."""
    count, weight = len(batch.obs), getattr(batch, "weight", None)
    other = np.ones(count) if weight is None else weight.cpu().numpy() + 1
    agent.load_state_dict(copy.deepcopy(state))
    try:
        _update(agent, Batch(*batch[:5]).weighted(other, np.arange(count)))
    except Exception:
        return None
    return _moments(agent)


def _moments(agent: Any) -> torch.Tensor:
    states = [optimizer.state_dict() for optimizer in agent.optimizers.values()]
    return torch.cat([moment.flatten() for state in states for moment in state["first_moments"]])


def _require_columns(batch: Any) -> None:
    """Raises UserError for a column of another shape, such as rewards (B,), which losses would broadcast to (B, B)."""
    count = len(batch.action)
    shapes = {"reward": (count, 1), "discount": (count, 1), "weight": (count,), "index": (count,)}
    for column, shape in shapes.items():
        array = getattr(batch, column, None)  # in a batch of another class, `index` may be tuple's method
        if isinstance(array, torch.Tensor) and tuple(array.shape) != shape:
            raise UserError(f"replay buffer: batch.{column} has shape {tuple(array.shape)}; {shape} is needed")


def _require_metrics(metrics: dict[str, Any], name: str) -> None:
    columns = dict.fromkeys(OF_THE_LOOP, "the training loop")
    for key, value in metrics.items():
        if not key.startswith(("train/", "train_")):
            raise UserError(f"{name}.update_step's metric {key!r}: the key has to begin with train/ or train_")
        column = key[len("train/") :].replace("/", "_")
        if owner := columns.get(column):
            raise UserError(f"{name}.update_step's metric {key!r}: {owner} has the column {column} too; rename it")
        columns[column] = repr(key)
        if not isinstance(value, torch.Tensor):
            raise UserError(
                f"{name}.update_step's metric {key!r} is a Python number, which a recorded update would freeze; "
                "make it a tensor, such as torch.full_like(loss, number)"
            )
        if value.requires_grad:
            raise UserError(f"{name}.update_step's metric {key!r} has a gradient; return it detached")
        if value.numel() != 1:
            raise UserError(f"{name}.update_step's metric {key!r} has {value.numel()} elements; one is needed")


def require_finite_metrics(metrics: dict[str, torch.Tensor], name: str) -> None:
    """Raises RunError for a metric that is not finite in the first update."""
    for key, value in metrics.items():
        if not torch.isfinite(value):
            raise RunError(f"{name}.update_step: in the first update, {key} is {value.item()}")


def _global_generators(device: torch.device) -> list[torch.Tensor]:
    """Returns the states of the global generators of torch, NumPy and Python."""
    of_numpy: Any = np.random.get_state()
    states = [torch.get_rng_state(), torch.tensor([*of_numpy[1].tolist(), of_numpy[2]])]
    states.append(torch.tensor(random.getstate()[1]))
    return [*states, *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


class _Value(NamedTuple):
    """A number, a tensor or a copied array of an agent's attributes. A kept tensor's identity goes to no other one."""

    value: Any
    version: int  # of a tensor: how often it was changed in place

    def equals(self, other: "_Value") -> bool:
        if isinstance(self.value, torch.Tensor):
            return self.value is other.value and self.version == other.version
        if isinstance(self.value, np.ndarray):
            return isinstance(other.value, np.ndarray) and np.array_equal(self.value, other.value)
        return type(self.value) is type(other.value) and self.value == other.value


def _values(agent: Any) -> dict[str, _Value]:
    """Returns the numbers, tensors and arrays in the agent's attributes, and in dictionaries, lists and tuples there.

    Without booleans in containers, as in `agent.pattern`, and without what a cached_property computed.
    """
    values: dict[str, Any] = {}
    for name, value in vars(agent).items():
        if isinstance(inspect.getattr_static(type(agent), name, None), cached_property):
            continue
        values[name] = value
        values |= {f"{name}[{key!r}]": item for key, item in items(value) if not isinstance(item, bool)}
    return {
        name: _Value(copy.copy(value) if isinstance(value, np.ndarray) else value, getattr(value, "_version", 0))
        for name, value in values.items()
        if isinstance(value, int | float | torch.Tensor | np.ndarray)
    }
