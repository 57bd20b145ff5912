"""The temperature alpha: the weight of the entropy in SAC's objective."""

import math
from typing import Literal

import torch
from torch import nn

from agent.schedule import Exponential
from agent.toolkit.hooks import AfterStep, Scheduled
from settings.types import NonNegativeFloat, PositiveFloat, Schedule
from settings.validated import Validated
from utils import UserError


class LearnedTemperature(nn.Module, AfterStep, Validated):
    """A parameter that the agent adjusts towards its target entropy (arXiv 1812.05905, section 5).

    Args:
        init_temperature: alpha at the start.
        form: the parameter, and the factor that multiplies the entropy error in the loss.
            `exp`: the parameter is log alpha, the factor alpha, as in (18).
            `log`: parameter and factor are log alpha, so steps do not shrink with alpha.
            `direct`: parameter and factor are alpha, which is kept at 0 or above.

    Raises:
        UserError: for an initial value of 0, unless the form is `direct`.
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
        """Returns the factor that multiplies the entropy error in the temperature's loss."""
        return self.parameter.exp() if self.form == "exp" else self.parameter

    @torch.no_grad()
    def after_step(self) -> None:
        if self.form == "direct":
            self.parameter.clamp_(min=0)


class FixedTemperature(nn.Module, Scheduled, Validated):
    """An alpha that is constant, or follows a schedule of the environment step."""

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
        if self.schedule is not None:
            self.alpha.fill_(self.schedule(step))


class ExponentialTemperature(FixedTemperature):
    """alpha(t) = final + (init_temperature - final) exp(-t / decay), t in environment steps."""

    def __init__(self, init_temperature: NonNegativeFloat | Schedule, final: NonNegativeFloat, decay: PositiveFloat):
        super().__init__(Exponential(_number(init_temperature, "exponential"), final, decay))


def _number(init_temperature: NonNegativeFloat | Schedule, temperature: str) -> float:
    """Returns `init_temperature`; raises UserError for a schedule, which this temperature cannot follow."""
    if callable(init_temperature):
        raise UserError(f"agent.init_temperature: a schedule needs agent/temperature=fixed, not {temperature}")
    return init_temperature
