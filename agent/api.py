"""All imports of a new algorithm's file (docs/NEW_AGENT.md)."""

# Imported for others, which is why no name is used here.
# ruff: noqa: F401
# mypy: implicit-reexport

from agent import Agent, losses  # the interface alone; the equations
from agent.networks.mlp import Init, Shape, build_network  # how weights start; an actor's or a critic's network
from agent.off_policy import LearningRate, Metrics, OffPolicyAgent, StepResult, UpdateAt  # the base class, its types
from agent.schedule import Schedules  # numbers on a schedule (`self.schedules`)
from agent.soft_actor import SoftActor  # with critics, slow targets, a soft actor and a temperature
from agent.toolkit.copies import evaluation_view, frozen_view  # a module in evaluation mode, or with constant weights
from agent.toolkit.histograms import UpdateOutputs  # the second result of an update step
from agent.toolkit.hooks import (  # around an update
    AfterStep,
    Draws,
    Noise,  # an update's random numbers
    Phased,
    Scheduled,
    TracksBatchStatistics,
)
from replay_buffer import Batch  # the input of an update step
from settings.types import (  # of the constructor's arguments, which are the keys of the YAML
    Betas,
    Bounds,
    Factory,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Schedule,
    UnitInterval,
)
from utils import SoftUpdate, UserError  # moves a target network; a mistake of the user, reported in one line
