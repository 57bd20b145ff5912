"""The updates of agent=self_predictive against their formulas, written out in float64."""

import torch
from agents import OBS_DIM, make_agent
