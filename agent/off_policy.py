"""What agents that learn from a replay buffer share: acting, the shell around an update, histograms, state."""

import copy
from abc import abstractmethod
from contextlib import nullcontext
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn

from agent import Agent
from agent.acting import Acts
from agent.averaging import ActorAverage
from agent.execution.adam import Adam
from agent.execution.eager import Eager
from agent.execution.noise import Drawn, Noise
from agent.execution.rehearsal import Rehearsal, rehearse
from agent.exploration import ExplorationFactory
from agent.found import Finds, stateful
from agent.histograms import HistogramInputs, log_histograms
from agent.networks.encoder import EncoderFactory, ImageShape
from agent.normalise import ObservationNormaliserFactory, RewardNormaliserFactory
from agent.observations import AugmentationFactory, observations
from agent.policy_file import recipe
from agent.priorities import hand_back
from agent.schedule import Schedules
from replay_buffer import Batch
from settings.types import Betas, Factory, NonNegativeFloat, Part, PositiveInt, Schedule, UnitInterval
from utils import UserError, require_count

LearningRate = NonNegativeFloat | Schedule
CriticFactory = Annotated[Factory, Part("a critic", ("obs_dim", "action_dim"), ("forward", "outputs"))]
ActorFactory = Annotated[Factory, Part("an actor", ("obs_dim", "action_dim"), ("forward",))]
Metrics = dict[str, torch.Tensor]  # log key -> a scalar on the device, detached


class OffPolicyAgent(Acts, Agent, Finds):
    """An actor that acts, and an update step on batches; a subclass says which networks, and what step.

    docs/NEW_AGENT.md is the page for authors. A subclass's constructor builds `self.actor` and whatever else it learns
    with as attributes, and names an optimizer for each module that learns (`add_optimizer`). Modules, optimizers and
    everything else with a `state_dict` are found, and so is what draws, what follows a step and what follows a batch.

    Args:
        obs_dim, action_dim: widths of observation and action.
        action_range: (low, high) that actions are clamped to.
        device: where networks and batches live.
        obs_shape: (C, H, W) where observations are images, uint8; None where they are vectors.
        discount: gamma.
        reward_scale: rewards are multiplied by it before the losses see them.
        batch_size: B, transitions an update.
        observation_normaliser, reward_normaliser: factories of what is in agent.normalise; None is none.
        exploration: factory of what holds the noise of training's actions (agent.exploration); None is none.
        actor_weight_decay, critic_weight_decay: AdamW's.
        actor_average_share: the share of the newest actor in its average, which evaluations and saved policies have
            (agent.averaging); 0 is that they have the newest.
        encoder, augmentation: factories for images (agent.observations); None is none.
    """

    def __init__(
        self,
        obs_dim: PositiveInt,
        action_dim: PositiveInt,
        action_range: tuple[float, float],
        device: torch.device,
        obs_shape: ImageShape | None = None,
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
        self.obs_dim, self.action_dim, self.action_range, self.device = obs_dim, action_dim, action_range, device
        normalised = observation_normaliser is not None
        self.observations = observations(obs_dim, obs_shape, device, encoder, augmentation, normalised)
        self.batch_size = batch_size
        self.actor_weight_decay, self.critic_weight_decay = actor_weight_decay, critic_weight_decay
        self.actor_average_share, self.actor_average = actor_average_share, None
        self.schedules = Schedules(discount=discount, reward_scale=reward_scale)
        self.optimizers: dict[str, Adam] = {}
        self._optimized: dict[str, nn.Module] = {}  # the module of each
        self.execution: Any = Eager()  # see agent/execution/choose.py
        self.run_update_step = self.update_step  # or that, compiled
        self.phase: tuple[Any, ...] = ()  # how each part that has phases computes now
        self.pattern: dict[int, bool] = {}  # by each frequency that update_step asks about: is it due now?
        self._num_updates = 0
        self.rehearsing = False  # see agent/execution/rehearsal.py
        self._inside_update = self._histograms_due = False
        self._rehearsals: dict[int, Rehearsal] = {}  # by batch size
        self.observation_normaliser: Any = None
        if observation_normaliser:
            self.observation_normaliser = observation_normaliser(obs_dim=obs_dim).to(device)
            self.observation_normaliser.recipe = recipe(observation_normaliser, obs_dim=obs_dim)
        self.reward_normaliser = reward_normaliser(device=device) if reward_normaliser else None
        self.exploration = exploration(device=device) if exploration else None

    # For the author of an agent.

    @abstractmethod
    def update_step(self, batch: Batch, noise: Noise) -> tuple[Metrics, HistogramInputs]:
        """One update from given tensors alone.

        Python runs in the first updates only, until the operations are recorded or captured (agent/execution). So what
        changes with time is a tensor, is asked of `due`, or is one of `self.schedules`; `execution=eager` runs every
        line every time, for a breakpoint or a print. What the first update can find wrong about it, it says.

        Args:
            batch: as the losses see it, normalised and scaled (see replay_buffer.Batch and WeightedBatch).
            noise: random numbers, in the shapes that it is asked for.

        Returns:
            Scalar tensors to average, by log key, and what histograms and priorities are made of; all detached.
        """

    def build(self, factory: Factory, takes_action: bool = True, learns_encoder: bool = False) -> Any:
        """A network that a YAML node describes, from its shapes, on the device.

        Args:
            takes_action: whether it is told `action_dim`.
            learns_encoder: whether its loss trains the convolutions, which the other networks have as constants.
        """
        factory = self.observations.factory(factory)
        shapes = self.observations.shapes | ({"action_dim": self.action_dim} if takes_action else {})
        network = factory(**shapes).to(self.device)
        network.recipe = recipe(factory, **shapes)  # so that a policy can be saved alone
        self.observations.share(network, learns_encoder)
        return network

    def add_optimizer(
        self,
        name: str,
        module: nn.Module,
        lr: LearningRate,
        betas: Betas = (0.9, 0.999),
        weight_decay: NonNegativeFloat = 0.0,
    ) -> None:
        """Adam for a module's parameters; `step_optimizers` calls it by this name, and so do logs and checkpoints."""
        self._optimized[name] = module
        if self.actor_average_share and module is getattr(self, "actor", None):
            self.actor_average = ActorAverage(module, self.actor_average_share)
        self.optimizers[name] = Adam((p for p in module.parameters() if p.requires_grad), lr, betas, weight_decay)

    def step_optimizers(self, **losses: torch.Tensor) -> None:
        """A gradient step of each named optimizer on its loss, all from the values before any step.

        Only the named modules' gradients are computed, in one backward pass: no loss may depend on the parameters of
        another one's module. What follows a step then follows.
        """
        optimizers = [self.optimizers[name] for name in losses]
        parameters = [parameter for optimizer in optimizers for parameter in optimizer.parameters]
        gradients = torch.autograd.grad(tuple(losses.values()), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        for name, optimizer in zip(losses, optimizers, strict=True):
            optimizer.step()
            for part in self._after_step[name]:
                part.after_step()
        for normaliser in self._follow_batches:
            normaliser.follow()
        if self.actor_average is not None and any(self._optimized[name] is self.actor for name in losses):
            self.actor_average.follow()

    def critic_loss(
        self, outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The head's, with the batch's weights; at several views added up, with the mean of their targets."""
        weights = () if weight is None else (weight,)
        loss = self.critic.head.loss(outputs, self.observations.mean_of_views(target), *weights)
        return loss if self.observations.num_views == 1 else self.observations.num_views * loss

    def priorities(self, batch: Batch, outputs: torch.Tensor, target: torch.Tensor) -> HistogramInputs:
        """Each row's TD error, for a replay buffer that draws by priority; nothing for one that draws uniformly."""
        if not isinstance(batch.index, torch.Tensor):
            return {}
        error = self.critic.head.td_error(outputs.detach(), self.observations.mean_of_views(target))
        error = error.unflatten(0, (self.observations.num_views, -1)).mean(0)
        return {"priorities": error.float(), "index": batch.index.clone()}  # a copy: the next batch overwrites it

    def due(self, frequency: int) -> bool:
        """Whether what happens every `frequency` updates happens in this one."""
        if self.rehearsing or frequency not in self.pattern:
            self.pattern[frequency] = self.rehearsing or self._num_updates % frequency == 0
        return self.pattern[frequency]

    @property
    def num_updates(self) -> int:
        """Updates made so far. Not for update_step: what is recorded would go on with the number of that time."""
        if self._inside_update:
            raise UserError(
                f"{type(self).__name__}.update_step reads num_updates, which a recorded update would freeze; ask "
                "self.due(frequency), or put the number on a schedule"
            )
        return self._num_updates

    # The data.

    def observe(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        next_obs: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        if self.observation_normaliser is not None:  # what the networks may be given, as often as it lies in the buffer
            self.observation_normaliser.observe(np.concatenate([obs, next_obs]))
        if self.reward_normaliser is not None:
            self.reward_normaliser.observe(reward, terminated | truncated, self.schedules.discount)
        if self.exploration is not None:
            self.exploration.release(terminated | truncated)

    def train(self, training: bool = True) -> None:
        super().train(training)
        for module in self.modules.values():
            module.train(training)

    # An update.

    def update(self, replay_buffer: Any, logger: Any, step: int) -> None:
        for follower in self._follow_steps:
            follower.set_step(step)
        self.phase = tuple(part.enter_phase() for part in self._phased)
        metrics, seen = self.execution(self, replay_buffer)
        hand_back(self, replay_buffer, seen)
        logger.log_all(metrics, step)
        self._histograms_due |= logger.histograms_due(step)
        if self._histograms_due and metrics.keys() >= self._rehearsals[self.batch_size].metrics:  # every part learnt
            log_histograms(seen, self._optimized, logger, step)
            self._histograms_due = False
        self._count_updates(self._num_updates + 1)

    def draw(self, batch: Batch) -> list[torch.Tensor]:
        """The random numbers of the update on this batch, for `compute`; the first of a process rehearses."""
        if self.batch_size not in self._rehearsals:
            self._rehearsals = {self.batch_size: rehearse(self, batch)}
        for part in self._draw:
            part.draw(self.policy.generator)
        return self._rehearsals[self.batch_size].plan.draw(self.device, self.policy.generator)

    def compute(self, batch: Batch, numbers: list[torch.Tensor]) -> tuple[Metrics, HistogramInputs]:
        """What an update does on the device, from a batch and the numbers that were drawn for it."""
        return self.run_on(batch, Drawn(self._rehearsals[self.batch_size].plan, numbers))

    def run_on(self, batch: Batch, noise: Noise) -> tuple[Metrics, HistogramInputs]:
        """The update step on a batch as the losses see it; what is stored and logged is raw."""
        seen = self.observations.views(batch, noise)
        if self.observation_normaliser is not None:
            obs, next_obs = self.observation_normaliser(seen.obs), self.observation_normaliser(seen.next_obs)
            seen = seen._replace(obs=obs, next_obs=next_obs)
        reward = seen.reward if self.reward_normaliser is None else self.reward_normaliser(seen.reward)
        seen = seen._replace(reward=self.schedules.reward_scale * reward)
        # No cache of casts: one that a captured graph filled would be read after its memory was reused.
        dtype = self.autocast_dtype
        self._inside_update = True
        try:
            with torch.autocast(self.device.type, dtype, cache_enabled=False) if dtype else nullcontext():
                metrics, inputs = self.run_update_step(seen, noise)
        finally:
            self._inside_update = False
        metrics["train/batch_reward"] = batch.reward.mean()
        return metrics, {**inputs, **self.observations.shown(seen.obs)}  # type: ignore[typeddict-item]

    def why_eager(self) -> str:
        if not self.schedules.changing:
            return ""
        names = ", ".join(f"agent.{name}" for name in self.schedules.changing)
        return f"{names} on a schedule would be frozen in it"

    def _count_updates(self, num_updates: int) -> None:
        self._num_updates = num_updates
        self.pattern = {frequency: num_updates % frequency == 0 for frequency in self.pattern}

    # State.

    def _stateful(self) -> dict[str, Any]:
        _ = self.policy  # which is made when it is first asked for
        return stateful(self)

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: part.state_dict() for name, part in self._stateful().items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "num_updates": self._num_updates,
            "histograms_due": self._histograms_due,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self._count_updates(require_count(state["num_updates"], "num_updates"))
        self._histograms_due = state["histograms_due"]

    def snapshot(self) -> dict[str, Any]:
        """A copy of the state, for `load_state_dict`."""
        return copy.deepcopy(self.state_dict())
