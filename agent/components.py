"""The components of an agent: modules, optimizers and hooks, found in its attributes, stepped, saved and restored."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NoReturn

import torch
from torch import nn

from agent import Agent
from agent.toolkit.adam import Adam
from agent.toolkit.frozen import is_view
from agent.toolkit.hooks import AfterStep, Draws, FollowsBatches, FollowsSteps, Phased
from settings.types import Betas, NonNegativeFloat, Schedule
from utils import UserError

LearningRate = NonNegativeFloat | Schedule


class Components(Agent):
    """An agent whose modules and stateful objects are found in its attributes, so an author declares nothing twice."""

    def __init__(self) -> None:
        self.rehearsing = False  # see agent/execution/rehearsal.py
        self.optimizers: dict[str, Adam] = {}
        self._optimized: dict[str, nn.Module] = {}  # optimizer name -> the module that it steps
        self._collected: dict[str, torch.Tensor] | None = None  # losses in `steps_together`
        self._after_update: dict[str, Callable[[], None]] = {}  # optimizer name -> called last in `step_optimizers`

    def add_optimizer(
        self,
        name: str,
        module: nn.Module,
        lr: LearningRate,
        betas: Betas = (0.9, 0.999),
        weight_decay: NonNegativeFloat = 0.0,
    ) -> None:
        """Adds Adam for a module's parameters. `step_optimizers`, logs and checkpoints refer to it by `name`."""
        if not isinstance(module, nn.Module):
            raise UserError(f"add_optimizer({name!r}, ...): a torch.nn.Module goes here, not a {type(module).__name__}")
        self._optimized[name] = module
        self.optimizers[name] = Adam((p for p in module.parameters() if p.requires_grad), lr, betas, weight_decay)

    def step_optimizers(self, **losses: torch.Tensor) -> None:
        """Steps each named optimizer on its loss; computes all gradients before any step.

        Only the gradients of the named modules are computed, in one backward pass: no loss may depend on the parameters
        of another loss's module.
        """
        if self._collected is not None:
            self._collected |= losses
            return
        self._require_losses(losses)
        if self.rehearsing:
            self._require_apart(losses)
        optimizers = [self.optimizers[name] for name in losses]
        parameters = [parameter for optimizer in optimizers for parameter in optimizer.parameters]
        gradients = torch.autograd.grad(tuple(losses.values()), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        for name, optimizer in zip(losses, optimizers, strict=True):
            optimizer.step()
            for layer in self._after_step[name]:
                layer.after_step()
        self.follow_batches()
        for name in losses:
            if name in self._after_update:
                self._after_update[name]()

    def _require_losses(self, losses: dict[str, torch.Tensor]) -> None:
        """Raises UserError if a loss has no optimizer, is no scalar, or has no gradient."""
        agent = type(self).__name__
        for name, loss in losses.items():
            if name not in self.optimizers:
                raise UserError(f"{agent}: step_optimizers({name}=...): {name!r} has no optimizer; use add_optimizer")
            if not isinstance(loss, torch.Tensor):
                raise UserError(
                    f"{agent}: the loss {name!r} is a {type(loss).__name__}; a tensor with a gradient goes here"
                )
            if loss.numel() != 1:
                raise UserError(f"{agent}: the loss {name!r} has shape {tuple(loss.shape)}; reduce it with mean()")
            if not loss.requires_grad:
                raise UserError(
                    f"{agent}: the loss {name!r} has no gradient; compute it outside of no_grad, from tensors that are "
                    "not detached"
                )

    def _require_apart(self, losses: dict[str, torch.Tensor]) -> None:
        """Raises UserError if a loss does not use its own weights, or would move those of another loss."""
        agent, weights = type(self).__name__, {name: self.optimizers[name].parameters for name in losses}
        for name, loss in losses.items():
            for other, parameters in weights.items():
                gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
                if other == name and any(gradient is None for gradient in gradients):
                    raise UserError(
                        f"{agent}: the loss {name!r} does not use every weight that its optimizer steps; leave out "
                        "what is not used, or call requires_grad_(False) on it before add_optimizer"
                    )
                if other != name and any(gradient is not None for gradient in gradients):
                    raise UserError(
                        f"{agent}: the loss {name!r} would also move the weights of {other!r}; use a frozen_view of "
                        "them, or call step_optimizers for one loss after the other"
                    )

    @contextmanager
    def steps_together(self) -> Iterator[None]:
        """A context in which `step_optimizers` only collects losses; steps on all of them together at the end."""
        self._collected = {}
        try:
            yield
            losses = self._collected
        finally:
            self._collected = None
        self.step_optimizers(**losses)

    def follow_batches(self) -> None:
        """Moves the statistics of all layers that have seen a batch since the last call."""
        for layer in self._batch_followers:
            layer.follow()

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The modules in the agent's attributes, without views, which share the state of another module."""
        return {
            name: value for name, value in vars(self).items() if isinstance(value, nn.Module) and not is_view(value)
        }

    # The hooks (agent/toolkit/hooks.py), searched for once, on first use, after the subclass's constructor.

    @cached_property
    def _after_step(self) -> dict[str, list[Any]]:
        return {name: _instances(AfterStep, [module]) for name, module in self._optimized.items()}

    @cached_property
    def _batch_followers(self) -> list[Any]:
        return _instances(FollowsBatches, self.modules.values())

    @cached_property
    def _step_followers(self) -> list[Any]:
        others = [value for value in vars(self).values() if not isinstance(value, nn.Module)]
        return _instances(FollowsSteps, [*others, *self.optimizers.values(), *self.modules.values()])

    @cached_property
    def _phased(self) -> list[Any]:
        return _instances(Phased, self.modules.values())

    @cached_property
    def _drawing(self) -> list[Any]:
        return _instances(Draws, vars(self).values())

    def rehearse_draws(self) -> None:
        """Calls `rehearse` on every layer that draws random numbers, so that it notes what an update needs."""
        for layer in self._drawing:
            layer.rehearse()

    # State.

    def _stateful(self) -> dict[str, Any]:
        """Returns the modules and all other attributes with a `load_state_dict`, by name, without views."""
        attributes = vars(self).items()
        return {name: value for name, value in attributes if hasattr(value, "load_state_dict") and not is_view(value)}

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: value.state_dict() for name, value in self._stateful().items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in self._stateful().items():
            value.load_state_dict(state[name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])

    def snapshot(self) -> dict[str, Any]:
        """Returns a copy of the state, for `load_state_dict`."""
        return copy.deepcopy(self.state_dict())

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        # Its views would show weights that no longer change, so the copy would learn and act wrongly without a word.
        raise TypeError(
            f"{type(self).__name__}: an agent cannot be copied, as its networks share memory; build another one and "
            "load this one's state_dict()"
        )


def _instances(kind: type, values: Iterable[Any]) -> list[Any]:
    """Returns the instances of a class among the values and their submodules, each once, in order."""
    instances: dict[int, Any] = {}
    for value in values:
        candidates = value.modules() if isinstance(value, nn.Module) else [value]
        instances |= {id(candidate): candidate for candidate in candidates if isinstance(candidate, kind)}
    return list(instances.values())
