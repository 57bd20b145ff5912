"""Fused Adam for a module's parameters. One call steps all of them, with decoupled weight decay on request."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from agent.toolkit.hooks import Scheduled
from settings.types import Schedule


class Adam(Scheduled):
    """Adam (arXiv 1412.6980, algorithm 1) with eps 1e-8, computed by torch's fused kernel.

    With weight decay it is AdamW (arXiv 1711.05101, algorithm 2 as in torch): before each step, all parameters, biases
    included, shrink by lr * weight_decay. torch.optim.Adam spends three times the kernel's time around it, at 256
    units. The learning rate is a tensor, so that a captured CUDA graph reads the newest one.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        lr: float | Schedule,
        betas: tuple[float, float],
        weight_decay: float = 0.0,
    ):
        self.parameters: list[Tensor] = list(parameters)
        self._constants = {"beta1": betas[0], "beta2": betas[1], "weight_decay": weight_decay, "eps": 1e-8}
        self._constants |= {"amsgrad": False, "maximize": False}
        self._kernel: Any = torch._fused_adamw_ if weight_decay else torch._fused_adam_
        self._moments = [[torch.zeros_like(p, requires_grad=False) for p in self.parameters] for _ in range(2)]
        device = self.parameters[0].device
        self.num_steps = torch.zeros((), device=device)  # float32: the kernel requires it
        self.lr = torch.zeros((), device=device)
        self._known_lr = float("nan")
        self._schedule = lr if callable(lr) else None
        self.set_lr(lr(0) if callable(lr) else lr)

    def set_step(self, step: int) -> None:
        if self._schedule is not None:
            self.set_lr(self._schedule(step))

    def set_lr(self, lr: float) -> None:
        if lr != self._known_lr:
            self.lr.fill_(lr)
            self._known_lr = lr

    @torch.no_grad()
    def step(self) -> None:
        gradients = [_in_layout_of(p, p.grad) for p in self.parameters]  # type: ignore[arg-type]  # each has one
        self.num_steps += 1
        tensors = self.parameters, gradients, *self._moments, [], [self.num_steps] * len(self.parameters)
        self._kernel(*tensors, lr=self.lr, **self._constants)

    def state_dict(self) -> dict[str, Any]:
        first, second = self._moments
        return {"num_steps": self.num_steps, "lr": self._known_lr, "first_moments": first, "second_moments": second}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.set_lr(state["lr"])
        saved = [state["num_steps"], *state["first_moments"], *state["second_moments"]]
        for tensor, value in zip([self.num_steps, *self._moments[0], *self._moments[1]], saved, strict=True):
            tensor.copy_(value)


def _in_layout_of(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Returns the gradient in the parameter's memory layout, which the kernel assumes.

    torch.autograd.grad leaves it in the last operation's layout: for convolutions on images, channels last.
    """
    if parameter.stride() == gradient.stride() or (parameter.is_contiguous() and gradient.is_contiguous()):
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
