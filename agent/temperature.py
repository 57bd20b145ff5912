"""The temperature: the weight alpha of the entropy in SAC's objective."""

import math

import torch
from torch import nn

from utils import PositiveFloat


class LearnedTemperature(nn.Module):
    """alpha = exp(log_alpha), with log_alpha a parameter (arXiv 1812.05905, section 5)."""

    def __init__(self, init_temperature: PositiveFloat):
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(math.log(init_temperature)))

    def forward(self) -> torch.Tensor:
        """alpha, a scalar tensor."""
        return self.log_alpha.exp()
