"""Agents that learn from a replay buffer: a subclass brings networks and an update step, this class the rest."""

from abc import abstractmethod
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import numpy as np
import torch

from agent.acting import ActingAgent
from agent.execution.eager import Eager, Result
from agent.execution.rehearsal import Rehearsal, rehearse
from agent.exploration import ExplorationFactory
from agent.networks.encoder import EncoderFactory, ImageShape
from agent.normalise import ObservationNormaliserFactory, RewardNormaliserFactory
from agent.observations import AugmentationFactory, observations
from agent.policy_file import recipe
from agent.schedule import Schedules
from agent.toolkit.histograms import HistogramInputs, log_histograms
from agent.toolkit.noise import DrawnNoise, Noise
from agent.toolkit.priorities import return_priorities
from replay_buffer import Batch
from settings.obs_spec import ObsSpec
from settings.types import Factory, Interface, NonNegativeFloat, NonNegativeInt, PositiveInt, Schedule, UnitInterval
from utils import UserError, require_count

CriticFactory = Annotated[Factory, Interface("a critic", ("obs_dim", "action_dim"), ("forward", "outputs"))]
ActorFactory = Annotated[Factory, Interface("an actor", ("obs_dim", "action_dim"), ("forward",))]
UpdateAt = Literal["first", "last"]
Metrics = dict[str, torch.Tensor]  # log key -> a scalar on the device, detached


class OffPolicyAgent(ActingAgent):
    """An agent with an actor and an update step on batches; docs/NEW_AGENT.md explains how to write one.

    The constructor of a subclass builds `self.actor` and its other networks (`build`), and adds an optimizer for each
    module that learns (`add_optimizer`). `update` draws a batch and its noise (`draw_noise`), then runs
    `compute_update` on the device, which calls the subclass's `update_step`.

    Args:
        obs_dim, action_dim: widths of observation and action.
        action_range: (low, high) that actions are clamped to.
        device: holds the networks and batches.
        obs_shape: (C, H, W) if observations are, or contain, images, uint8; None if they are vectors.
        vector_dim: number of vector elements beside the images.
        obs_groups: which observation elements actor and critics see (see ObsSpec.groups); None: all.
        discount: gamma.
        reward_scale: multiplies the rewards in the losses.
        batch_size: B, transitions per update.
        observation_normaliser, reward_normaliser: factories of normalisers (agent.normalise); None: no normaliser.
        exploration: factory of the exploration noise (agent.exploration); None draws new noise in every step.
        actor_weight_decay, critic_weight_decay: weight decay, as in AdamW.
        actor_average_share: step size of the moving average of the actor's weights, which is evaluated and saved
            (agent.averaging); 0 evaluates and saves the newest weights.
        encoder, augmentation: factories for images (agent.observations); None: not used.
    """

    def __init__(
        self,
        obs_dim: PositiveInt,
        action_dim: PositiveInt,
        action_range: tuple[float, float],
        device: torch.device,
        obs_shape: ImageShape | None = None,
        vector_dim: NonNegativeInt = 0,
        obs_groups: tuple[NonNegativeInt, NonNegativeInt] | None = None,
        discount: UnitInterval | Schedule = 0.99,
        reward_scale: float | Schedule = 1.0,
        batch_size: PositiveInt = 256,
        observation_normaliser: ObservationNormaliserFactory | None = None,
        reward_normaliser: RewardNormaliserFactory | None = None,
        exploration: ExplorationFactory | None = None,
        actor_weight_decay: NonNegativeFloat = 0.0,
        critic_weight_decay: NonNegativeFloat = 0.0,
        actor_average_share: UnitInterval = 0.0,
        encoder: EncoderFactory | None = None,
        augmentation: AugmentationFactory | None = None,
    ):
        super().__init__(actor_average_share)
        self.obs_dim, self.action_dim, self.action_range, self.device = obs_dim, action_dim, action_range, device
        normalised = observation_normaliser is not None
        spec = ObsSpec(obs_shape, vector_dim if obs_shape else obs_dim, groups=obs_groups)
        self.observations = observations(spec, device, encoder, augmentation, normalised)
        self.batch_size = batch_size
        self.actor_weight_decay, self.critic_weight_decay = actor_weight_decay, critic_weight_decay
        self.schedules = Schedules(discount=discount, reward_scale=reward_scale)
        self.execution: Any = Eager()  # or recorded, or captured: see run/execution.py
        self.compiled_step: Any = None  # torch.compile of update_step, if it is asked for
        self.phase: tuple[Any, ...] = ()  # the current phase of every layer that has phases
        self.pattern: dict[tuple[int, UpdateAt], bool] = {}  # arguments of `due` -> whether it is due now
        self._num_updates = 0
        self._inside_update = self._histograms_due = False
        self._rehearsal: Rehearsal | None = None
        self.observation_normaliser: Any = None
        if observation_normaliser:
            self.observation_normaliser = observation_normaliser(obs_dim=obs_dim).to(device)
            self.observation_normaliser.recipe = recipe(observation_normaliser, obs_dim=obs_dim)
        self.reward_normaliser = reward_normaliser(device=device) if reward_normaliser else None
        self.exploration = exploration(device=device) if exploration else None

    # For the author of an agent.

    @abstractmethod
    def update_step(self, batch: Batch, noise: Noise) -> tuple[Metrics, HistogramInputs]:
        """Computes losses and steps optimizers, using only the given tensors.

        Its Python code runs only in the first updates, until the operations are recorded or captured (agent/execution).
        So anything that changes over time must be a tensor, be on a schedule (`self.schedules`) or depend on
        `self.due`; the first update checks most of this. With `execution=eager`, for debugging, every line always runs.

        Args:
            batch: normalised and scaled (see replay_buffer.Batch and WeightedBatch).
            noise: random numbers in the shapes that the step asks for.

        Returns:
            Metrics by log key, and the inputs of histograms and priorities; all detached.
        """

    def build(self, factory: Factory, takes_action: bool = True, learns_encoder: bool = False) -> Any:
        """Builds a network from a YAML node, on the device.

        Args:
            takes_action: whether the factory is called with `action_dim`.
            learns_encoder: whether this network's loss trains the convolutions, which other networks keep constant.
                If so, or without `takes_action`, it sees the critics' observation group; otherwise the actor's.
        """
        is_actor = takes_action and not learns_encoder
        factory, shapes = self.observations.factory(factory, is_actor)
        shapes |= {"action_dim": self.action_dim} if takes_action else {}
        network = factory(**shapes).to(self.device)
        network.recipe = recipe(factory, **shapes)  # so that a policy can be saved alone
        self.observations.share(network, learns_encoder)
        if is_actor and self.observations.spec.groups and not getattr(network, "acts_alone", True):
            raise UserError(
                "obs_groups: this mixture's greedy actions ask the critic; choose agent=sac, or one component"
            )
        return network

    def due(self, frequency: int, at: UpdateAt = "first") -> bool:
        """Returns whether this update is the first, or with `at="last"` the last, of every `frequency` updates."""
        key = frequency, at
        if self.rehearsing or key not in self.pattern:
            self.pattern[key] = self.rehearsing or self._is_due(*key)
        return self.pattern[key]

    def _is_due(self, frequency: int, at: UpdateAt) -> bool:
        return (self._num_updates + (at == "last")) % frequency == 0

    def step_critic(self, batch: Batch, outputs: torch.Tensor, target: torch.Tensor) -> tuple[Metrics, HistogramInputs]:
        """Steps the optimizer "critic" on `critic_loss`; returns the loss, Q values and priorities."""
        loss = self.critic_loss(outputs, target, batch.weight)
        self.step_optimizers(critic=loss)
        q = self.critic.head.values(outputs.detach())
        return {"train_critic/loss": loss.detach()}, {"q": q, **self.priorities(batch, outputs, target)}

    def critic_loss(
        self, outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns the critic head's loss, with row weights (B,), summed over image views with their mean target."""
        if target.dim() != 2 or len(target) != outputs.shape[-2]:
            raise UserError(
                f"{type(self).__name__}: the critic's target has shape {tuple(target.shape)}; for outputs "
                f"{tuple(outputs.shape)}, (N, B, ...), it is (B, ...), as self.critic.head.target returns it"
            )
        weights = () if weight is None else (weight,)
        if target.requires_grad:
            raise UserError(
                f"{type(self).__name__}: the critic's target has a gradient; compute it under torch.no_grad()"
            )
        loss = self.critic.head.loss(outputs, self.observations.mean_of_views(target), *weights)
        return loss if self.observations.num_views == 1 else self.observations.num_views * loss

    def priorities(self, batch: Batch, outputs: torch.Tensor, target: torch.Tensor) -> HistogramInputs:
        """Returns each row's TD error for a prioritised replay buffer; {} for a uniform one."""
        if not isinstance(batch.index, torch.Tensor):
            return {}
        error = self.critic.head.td_error(outputs.detach(), self.observations.mean_of_views(target))
        error = error.unflatten(0, (self.observations.num_views, -1)).mean(0)
        return {"priorities": error.float(), "index": batch.index.clone()}  # a copy: the next batch overwrites it

    @property
    def num_updates(self) -> int:
        """Updates made so far. Do not read it in `update_step`: a recorded update would keep the recorded value."""
        if self._inside_update:
            raise UserError(
                f"{type(self).__name__}.update_step reads num_updates, which a recorded update would freeze; ask "
                "self.due(frequency), or put the number on a schedule"
            )
        return self._num_updates

    # Incoming data.

    def observe(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        next_obs: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        done = terminated | truncated
        if self.observation_normaliser is not None:  # counts an observation once per copy in the replay buffer
            join: Any = torch.cat if isinstance(obs, torch.Tensor) else np.concatenate
            self.observation_normaliser.observe(join([obs, next_obs]))
        if self.reward_normaliser is not None:
            self.reward_normaliser.observe(reward, done, self.schedules.discount)
        if self.exploration is not None:
            self.exploration.release(done)

    def train(self, training: bool = True) -> None:
        super().train(training)
        for module in self.modules.values():
            module.train(training)

    # An update.

    def update(self, replay_buffer: Any, logger: Any, step: int) -> None:
        # Schedules and phases are computed in Python, so set them before the update, which may run without Python.
        for follower in self._step_followers:
            follower.set_step(step)
        self.phase = tuple(layer.enter_phase() for layer in self._phased)
        # The execution samples a batch, draws the noise and computes the update, or replays a recording of it.
        metrics, outputs = self.execution(self, replay_buffer)
        return_priorities(self, replay_buffer, outputs)
        logger.log_all(metrics, step)
        # Histograms wait for an update in which everything was due.
        self._histograms_due |= logger.histograms_due(step)
        if self._histograms_due and self._rehearsal is not None and metrics.keys() >= self._rehearsal.metrics:
            log_histograms(outputs, self._optimized, logger, step)
            self._histograms_due = False
        self._set_num_updates(self._num_updates + 1)

    def draw_noise(self, batch: Batch) -> DrawnNoise:
        """Draws an update's random numbers, on the device; rehearses the update first if its batch size is new."""
        if self._rehearsal is None or self._rehearsal.batch_size != self.batch_size:
            self._rehearsal = rehearse(self, batch)
        for layer in self._drawing:
            layer.draw(self.policy.generator)
        plan = self._rehearsal.plan
        return DrawnNoise(plan, plan.draw(self.device, self.policy.generator))

    @property
    def rehearsed(self) -> bool:
        """Whether this process has rehearsed an update, after which `pattern` is complete."""
        return self._rehearsal is not None

    def compute_update(self, batch: Batch, noise: Noise) -> Result:
        """Runs the device's part of an update: prepares the batch and calls `update_step`."""
        prepared = self._prepare(batch, noise)
        step = self.update_step if self.rehearsing or self.compiled_step is None else self.compiled_step
        # No cache of casts: entries cached during a graph's capture would be read after their memory was reused.
        dtype = self.autocast_dtype
        self._inside_update = True
        try:
            with torch.autocast(self.device.type, dtype, cache_enabled=False) if dtype else nullcontext():
                returned = step(prepared, noise)
        finally:
            self._inside_update = False
        if not isinstance(returned, tuple) or len(returned) != 2:
            name, kind = type(self).__name__, type(returned).__name__
            raise UserError(f"{name}.update_step returns a {kind}; return metrics, histogram_inputs")
        metrics, outputs = returned
        metrics["train/batch_reward"] = batch.reward.mean()  # as stored, before normalising and scaling
        return metrics, {**outputs, **self.observations.shown(prepared.obs)}

    def _prepare(self, batch: Batch, noise: Noise) -> Batch:
        """Returns the batch that the losses use: views of images, normalised observations, scaled rewards."""
        batch = self.observations.views(batch, noise)
        if self.observation_normaliser is not None:
            obs, next_obs = self.observation_normaliser(batch.obs), self.observation_normaliser(batch.next_obs)
            batch = batch._replace(obs=obs, next_obs=next_obs)
        reward = batch.reward if self.reward_normaliser is None else self.reward_normaliser(batch.reward)
        return batch._replace(reward=self.schedules.reward_scale * reward)

    def why_eager(self) -> str:
        if not self.schedules.changing:
            return ""
        names = ", ".join(f"agent.{name}" for name in self.schedules.changing)
        return f"{names} on a schedule would be frozen in it"

    def _set_num_updates(self, num_updates: int) -> None:
        self._num_updates = num_updates
        self.pattern = {key: self._is_due(*key) for key in self.pattern}

    # State.

    def _stateful(self) -> dict[str, Any]:
        _ = self.policy  # built when it is first read, and part of the state
        return super()._stateful()

    def state_dict(self) -> dict[str, Any]:
        counts = {"num_updates": self._num_updates, "histograms_due": self._histograms_due}
        return super().state_dict() | counts

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._set_num_updates(require_count(state["num_updates"], "num_updates"))
        self._histograms_due = state["histograms_due"]


def takes_tensors(agent: Any) -> bool:
    """Returns whether `act` and `observe` are OffPolicyAgent's, which take tensors on the device as well as arrays."""
    methods = getattr(type(agent), "act", None), getattr(type(agent), "observe", None)
    return methods == (OffPolicyAgent.act, OffPolicyAgent.observe)
