"""The temperature alpha: the weight of the entropy in SAC's objective."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from agent.schedule import Exponential
from agent.toolkit.hooks import AfterStep, Scheduled
from settings.types import NonNegativeFloat, PositiveFloat, Schedule


class LearnedTemperature(nn.Module, AfterStep):
    """A parameter that the agent adjusts towards its target entropy (arXiv 1812.05905, section 5).

    Args:
        form: the parameter, and the factor that multiplies the entropy error in the loss.
            `exp`: the parameter is log alpha, the factor alpha, as in (18).
            `log`: parameter and factor are log alpha, so steps do not shrink with alpha.
            `direct`: parameter and factor are alpha, which is kept at 0 or above.
    """

    def __init__(self, init_temperature: NonNegativeFloat, form: Literal["exp", "log", "direct"] = "exp"):
        super().__init__()
        self.form = form
        start = init_temperature if form == "direct" else math.log(init_temperature)
        self.parameter = nn.Parameter(torch.tensor(float(start)))

    def forward(self) -> Tensor:
        """alpha, a scalar tensor."""
        return self.parameter if self.form == "direct" else self.parameter.exp()

    def multiplier(self) -> Tensor:
        return self.parameter.exp() if self.form == "exp" else self.parameter

    @torch.no_grad()
    def after_step(self) -> None:
        if self.form == "direct":
            self.parameter.clamp_(min=0)


class FixedTemperature(nn.Module, Scheduled):
    """An alpha that is constant, or follows a schedule of the environment step."""

    def __init__(self, init_temperature: NonNegativeFloat | Schedule):
        super().__init__()
        self.schedule = init_temperature if callable(init_temperature) else None
        self.alpha = nn.Buffer(torch.tensor(0.0 if callable(init_temperature) else float(init_temperature)))
        self.set_step(0)

    def forward(self) -> Tensor:
        return self.alpha

    def set_step(self, step: int) -> None:
        if self.schedule is not None:
            self.alpha.fill_(self.schedule(step))


class ExponentialTemperature(FixedTemperature):
    """alpha(t) = final + (init_temperature - final) exp(-t / decay), t in environment steps."""

    def __init__(self, init_temperature: NonNegativeFloat, final: NonNegativeFloat, decay: PositiveFloat):
        super().__init__(Exponential(init_temperature, final, decay))
