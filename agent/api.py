"""All imports of a new algorithm's file (docs/NEW_AGENT.md).

Base classes
    OffPolicyAgent: an actor and an update step, run by the framework; SoftActor: adds critics, slow targets, a soft
    actor and a temperature; Agent: only the interface.
The update step
    Batch: its input; Noise: its random numbers; Metrics, HistogramInputs: its two results.
    losses: the equations; SoftUpdate: moves a target network; frozen_view, evaluation_view: a module with constant
    weights, or in evaluation mode.
    refuse_batch_norm: rejects networks with batch statistics, for agents with plain batches.
Types of the constructor's arguments, which are the keys of the YAML
    Factory: a node with a `_target_`; LearningRate, Schedule: a number, or one that follows the step; PositiveInt,
    NonNegativeInt, PositiveFloat, NonNegativeFloat, UnitInterval, Bounds, Betas, Depth, Init, UpdateAt, UpdateOrder:
    values.
Building
    build_network: makes an actor's or critic's MLP or other network. Schedules: numbers on a schedule
    (`self.schedules`). UserError: a mistake of the user, reported in one line.
Hooks, for layers that act around an update
    AfterStep: acts after each optimizer step; TracksBatchStatistics: keeps statistics of batches; Scheduled: follows
    schedules; Phased: changes how it computes; Draws: draws random numbers.
"""

# Imported for others, which is why no name is used here.
# ruff: noqa: F401
# mypy: implicit-reexport

from agent import Agent, losses
from agent.networks.batch_norm import refuse_batch_norm
from agent.networks.mlp import Init
from agent.networks.residual import build_network
from agent.off_policy import LearningRate, Metrics, OffPolicyAgent, UpdateAt
from agent.schedule import Schedules
from agent.soft_actor import SoftActor, UpdateOrder
from agent.toolkit.frozen import evaluation_view, frozen_view
from agent.toolkit.histograms import HistogramInputs
from agent.toolkit.hooks import AfterStep, Draws, Phased, Scheduled, TracksBatchStatistics
from agent.toolkit.noise import Noise
from replay_buffer import Batch
from settings.types import (
    Betas,
    Bounds,
    Depth,
    Factory,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Schedule,
    UnitInterval,
)
from utils import SoftUpdate, UserError
