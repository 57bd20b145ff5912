"""The temperature: the weight alpha of the entropy in SAC's objective. Learned, fixed, or falling with the step."""

import math
from typing import Literal

import torch
from torch import nn

from agent.schedule import Exponential
from agent.toolkit.hooks import AfterStep, FollowsSteps
from settings.types import NonNegativeFloat, PositiveFloat, Schedule
from settings.validated import Validated
from utils import UserError


class LearnedTemperature(nn.Module, AfterStep, Validated):
    """A parameter that the agent adjusts towards its target entropy (arXiv 1812.05905, section 5).

    Args:
        init_temperature: alpha at the start.
        form: what is learned, and what multiplies the entropy's error in the loss.
            `exp`: log alpha is learned, alpha multiplies, as in (18).
            `log`: log alpha is learned and multiplies, so the step does not shrink with alpha.
            `direct`: alpha is learned and multiplies, kept at 0 or above.

    Raises:
        UserError: for a start at 0 in a form that takes its logarithm.
    """

    def __init__(self, init_temperature: NonNegativeFloat | Schedule, form: Literal["exp", "log", "direct"] = "exp"):
        super().__init__()
        start = _number(init_temperature, "learned")
        if form != "direct" and start == 0:
            raise UserError(f"agent.init_temperature=0: above 0 unless agent.temperature.form is direct, not {form}")
        self.form = form
        self.parameter = nn.Parameter(torch.tensor(float(start if form == "direct" else math.log(start))))

    def forward(self) -> torch.Tensor:
        """alpha, a scalar tensor."""
        return self.parameter if self.form == "direct" else self.parameter.exp()

    def multiplier(self) -> torch.Tensor:
        """What multiplies the entropy's error in the temperature's loss."""
        return self.parameter.exp() if self.form == "exp" else self.parameter

    @torch.no_grad()
    def after_step(self) -> None:
        """alpha is never below 0."""
        if self.form == "direct":
            self.parameter.clamp_(min=0)


class FixedTemperature(nn.Module, FollowsSteps, Validated):
    """alpha stays, or follows a schedule of the environment step; it has nothing to learn."""

    def __init__(self, init_temperature: NonNegativeFloat | Schedule):
        super().__init__()
        self.alpha: torch.Tensor
        self.schedule = init_temperature if callable(init_temperature) else None
        self.register_buffer("alpha", torch.tensor(0.0 if callable(init_temperature) else float(init_temperature)))
        self.set_step(0)

    def forward(self) -> torch.Tensor:
        """alpha, a scalar tensor."""
        return self.alpha

    def set_step(self, step: int) -> None:
        """Gives alpha its value at this environment step."""
        if self.schedule is not None:
            self.alpha.fill_(self.schedule(step))


class ExponentialTemperature(FixedTemperature):
    """alpha(t) = final + (init_temperature - final) exp(-t / decay), t in environment steps."""

    def __init__(self, init_temperature: NonNegativeFloat | Schedule, final: NonNegativeFloat, decay: PositiveFloat):
        super().__init__(Exponential(_number(init_temperature, "exponential"), final, decay))


def _number(init_temperature: NonNegativeFloat | Schedule, temperature: str) -> float:
    """Of a temperature that follows no schedule."""
    if callable(init_temperature):
        raise UserError(f"agent.init_temperature: a schedule needs agent/temperature=fixed, not {temperature}")
    return init_temperature
