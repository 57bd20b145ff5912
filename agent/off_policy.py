"""Agents that learn from a replay buffer: a subclass brings networks and an update step, this class the rest."""

import copy
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from agent import Agent
from agent.execution import Eager, Result
from agent.networks.batch_norm import BatchNorm
from agent.networks.encoder import ImageShape
from agent.observations import Images, Vectors
from agent.policy import Policy, recipe, save_policy
from agent.schedule import Schedules
from agent.toolkit.adam import Adam
from agent.toolkit.copies import ActorAverage, evaluation_view, is_view
from agent.toolkit.histograms import UpdateOutputs, log_histograms
from agent.toolkit.hooks import AfterStep, Draws, Noise, Phased, Scheduled, TracksBatchStatistics
from replay_buffer import Batch
from settings.obs_spec import ObsSpec
from settings.types import Betas, Factory, NonNegativeFloat, NonNegativeInt, PositiveInt, Schedule, UnitInterval
from utils import SoftUpdate, UserError

LearningRate = NonNegativeFloat | Schedule
UpdateAt = Literal["first", "last"]
Metrics = dict[str, Tensor]  # log key -> a scalar on the device, detached
StepResult = tuple[Metrics, UpdateOutputs]


class OffPolicyAgent(Agent):
    """An agent with an actor and an update step on batches; docs/NEW_AGENT.md explains how to write one.

    The constructor of a subclass builds `self.actor` and its other networks (`build`), and adds an optimizer for each
    module that learns (`add_optimizer`). All modules, and all other attributes with `state_dict` and `load_state_dict`,
    are found, saved and restored. An update goes `update` -> `execution` -> `compute_update` -> `update_step`.

    Args, besides the keys that config/agent/sac.yaml explains:
        action_range: (low, high) that actions are clamped to.
        obs_shape: (C, H, W) if observations are, or contain, images, uint8; None if they are vectors.
        vector_dim: number of vector elements beside the images.
        obs_groups: which observation elements actor and critics see (see ObsSpec.groups); None: all.
    """

    supports_prioritised_replay = True  # as `step_critic` does
    actor: Any
    critic: Any  # if the agent has one

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
        observation_normaliser: Factory | None = None,
        reward_normaliser: Factory | None = None,
        exploration: Factory | None = None,
        actor_weight_decay: NonNegativeFloat = 0.0,
        critic_weight_decay: NonNegativeFloat = 0.0,
        actor_average_share: UnitInterval = 0.0,
        encoder: Factory | None = None,
        augmentation: Factory | None = None,
    ):
        self.obs_dim, self.action_dim, self.action_range, self.device = obs_dim, action_dim, action_range, device
        spec = ObsSpec(obs_shape, vector_dim if obs_shape else obs_dim, groups=obs_groups)
        self.observations = Images(encoder, augmentation, spec, device) if spec.image else Vectors(spec)
        self.batch_size = batch_size
        self.actor_weight_decay, self.critic_weight_decay = actor_weight_decay, critic_weight_decay
        self.schedules = Schedules(discount=discount, reward_scale=reward_scale)
        self.optimizers: dict[str, Adam] = {}
        self.optimized: dict[str, nn.Module] = {}  # optimizer name -> the module that it steps
        self.execution: Any = Eager()  # or recorded, or captured: see run/execution.py
        self.compiled_step: Any = None  # torch.compile of update_step, if it is asked for
        self.phase: tuple[Any, ...] = ()  # the current phase of every layer that has phases
        self.due_now: dict[tuple[int, UpdateAt], bool] = {}  # arguments of `due` -> whether it is due now
        self.num_updates = 0  # not for update_step, whose recording would freeze it
        self.histograms_due = False
        self._collected: dict[str, Tensor] | None = None  # losses in `steps_together`
        self._slow_copies: list[SoftUpdate] = []
        self._actor_average_share = actor_average_share
        self.actor_average: ActorAverage | None = None
        self.observation_normaliser: Any = None
        if observation_normaliser:
            if spec.image:
                raise UserError("agent/observation_normaliser must be none: observations are images")
            self.observation_normaliser = observation_normaliser(obs_dim=obs_dim).to(device)
            self.observation_normaliser.recipe = recipe(observation_normaliser, obs_dim=obs_dim)
        self.reward_normaliser = reward_normaliser(device=device) if reward_normaliser else None
        self.exploration = exploration(device=device) if exploration else None

    # For the author of an agent.

    @abstractmethod
    def update_step(self, batch: Batch, noise: Noise) -> StepResult:
        """Computes losses and steps optimizers on a batch, normalised and scaled (replay_buffer.Batch, WeightedBatch).

        Its Python code runs only in the first updates, until the operations are recorded or captured (agent/execution).
        So anything that changes over time must be a tensor, be on a schedule (`self.schedules`) or depend on
        `self.due`. With `execution=eager`, for debugging, every line always runs.

        Returns:
            Metrics by log key, and the inputs of histograms and priorities; all detached.
        """

    def build(self, factory: Factory, takes_action: bool = True, learns_encoder: bool = False) -> Any:
        """Builds a network from a YAML node, on the device; with `takes_action`, the node is called with `action_dim`.

        The loss of the network with `learns_encoder` trains the convolutions, which others keep constant. This one, and
        networks without `takes_action`, see the critics' observation group; others the actor's.
        """
        is_actor = takes_action and not learns_encoder
        factory, shapes = self.observations.factory(factory, is_actor)
        shapes |= {"action_dim": self.action_dim} if takes_action else {}
        network = factory(**shapes).to(self.device)
        network.recipe = recipe(factory, **shapes)  # so that a policy can be saved alone
        self.observations.share(network, learns_encoder)
        return network

    def slow_copy(self, network: nn.Module) -> Any:
        """Returns a target network, which `move_slow_copies` moves towards the network."""
        target = copy.deepcopy(network).requires_grad_(False)
        self._slow_copies.append(SoftUpdate(network, target))
        return target

    def move_slow_copies(self, tau: float) -> None:
        for move in self._slow_copies:
            move(tau)

    def add_optimizer(
        self,
        name: str,
        module: nn.Module,
        lr: LearningRate,
        betas: Betas = (0.9, 0.999),
        weight_decay: NonNegativeFloat = 0.0,
    ) -> None:
        """Adds Adam for a module's parameters. `step_optimizers`, logs and checkpoints refer to it by `name`."""
        self.optimized[name] = module
        self.optimizers[name] = Adam((p for p in module.parameters() if p.requires_grad), lr, betas, weight_decay)
        if self._actor_average_share and module is getattr(self, "actor", None):
            self.actor_average = ActorAverage(module, self._actor_average_share)

    def refuse_batch_norm(self) -> None:
        """Raises UserError for batch normalisation, for agents whose batches hold only one end of the transitions."""
        for name in ("actor", "critic"):
            if any(isinstance(layer, BatchNorm | _BatchNorm) for layer in getattr(self, name).modules()):
                what = "batch normalisation is for agent=crossq, whose batches have both ends"
                raise UserError(f"agent.{name}.network: {what}")

    def step_optimizers(self, **losses: Tensor) -> None:
        """Steps each named optimizer on its loss; computes all gradients before any step, in one backward pass.

        No loss may depend on the parameters of another loss's module.
        """
        if self._collected is not None:
            self._collected |= losses
            return
        optimizers = [self.optimizers[name] for name in losses]
        parameters = [parameter for optimizer in optimizers for parameter in optimizer.parameters]
        gradients = torch.autograd.grad(tuple(losses.values()), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        for name, optimizer in zip(losses, optimizers, strict=True):
            optimizer.step()
            for layer in self._after_step[name]:
                layer.after_step()
        self.track_batch_statistics()
        if self.actor_average is not None and any(self.optimized[name] is self.actor for name in losses):
            self.actor_average.follow()

    @contextmanager
    def steps_together(self) -> Iterator[None]:
        """A context in which `step_optimizers` only collects losses; steps on all of them together at the end."""
        self._collected = {}
        try:
            yield
            losses = self._collected
        finally:
            self._collected = None
        self.step_optimizers(**losses)

    def track_batch_statistics(self) -> None:
        """Moves the statistics of all layers that have seen a batch since the last call."""
        for layer in self._hooks[TracksBatchStatistics]:
            layer.track()

    def due(self, frequency: int, at: UpdateAt = "first") -> bool:
        """Returns whether this update is the first, or with `at="last"` the last, of every `frequency` updates."""
        key = frequency, at
        if key not in self.due_now:
            self.due_now[key] = self._is_due(*key)
        return self.due_now[key]

    @property
    def variant(self) -> tuple[Any, ...]:
        """The Python values that an update branches on; each combination needs a separate recording or graph."""
        return self.training, self.phase, *sorted(self.due_now.items())

    def _is_due(self, frequency: int, at: UpdateAt) -> bool:
        return (self.num_updates + (at == "last")) % frequency == 0

    def step_critic(self, batch: Batch, outputs: Tensor, target: Tensor) -> StepResult:
        """Steps the optimizer "critic" on `critic_loss`; returns the loss, Q values and priorities."""
        loss = self.critic_loss(outputs, target, batch.weight)
        self.step_optimizers(critic=loss)
        q = self.critic.head.values(outputs.detach())
        return {"train_critic/loss": loss.detach()}, {"q": q, **self.priorities(batch, outputs, target)}

    def critic_loss(self, outputs: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Returns the critic head's loss, with row weights (B,), summed over image views with their mean target."""
        weights = () if weight is None else (weight,)
        loss = self.critic.head.loss(outputs, self.observations.mean_of_views(target), *weights)
        return loss if self.observations.num_views == 1 else self.observations.num_views * loss

    def priorities(self, batch: Batch, outputs: Tensor, target: Tensor) -> UpdateOutputs:
        """Returns each row's TD error for a prioritised replay buffer; {} for a uniform one."""
        if batch.index is None:
            return {}
        error = self.critic.head.td_error(outputs.detach(), self.observations.mean_of_views(target))
        error = error.unflatten(0, (self.observations.num_views, -1)).mean(0)
        return {"priorities": error, "index": batch.index.clone()}  # a copy: the next batch overwrites it

    # Acting.

    @cached_property
    def policy(self) -> Policy:
        """The policy that is evaluated and saved: the actor, or its average, in evaluation mode."""
        # A separate generator, so that other random draws (an environment's, an evaluation's) do not shift the noise.
        generator = torch.Generator(self.device).manual_seed(torch.initial_seed())
        actor = evaluation_view(self.actor) if self.actor_average is None else self.actor_average.network
        return self._make_policy(actor, generator)

    @property
    def newest_policy(self) -> Policy:
        """The policy that acts in training: the newest weights, with noise from the generator of `policy`."""
        average = self.actor_average
        if average is None:
            return self.policy
        if average.newest is None:
            average.newest = self._make_policy(evaluation_view(self.actor), self.policy.generator)
        return average.newest

    def _make_policy(self, actor: Any, generator: torch.Generator) -> Policy:
        """Returns a policy, with the critic if greedy actions need it."""
        critic = None if actor.acts_alone else evaluation_view(self.critic)
        return Policy(actor, self.action_range, self.device, generator, critic, self.observation_normaliser)

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        if self.training:
            return self.newest_policy.act(obs, sample, self.exploration)
        return self.policy.act(obs, sample)

    def save_policy(self, path: str | Path) -> None:
        """Writes the policy alone, with the critic if greedy actions need it (see agent.policy.load_policy)."""
        save_policy(self.policy, path)

    def observe(self, obs: Any, action: Any, reward: Any, next_obs: Any, terminated: Any, truncated: Any) -> None:
        done = terminated | truncated
        if self.observation_normaliser is not None:  # counts an observation once per copy in the replay buffer
            join: Any = torch.cat if isinstance(obs, Tensor) else np.concatenate
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
        for scheduled in self._hooks[Scheduled]:
            scheduled.set_step(step)
        self.due_now = {key: self._is_due(*key) for key in self.due_now}
        self.phase = tuple(layer.enter_phase() for layer in self._hooks[Phased])
        # Histograms wait for an update in which every optimizer steps.
        self.histograms_due |= logger.histograms_due(step)
        parameters = [p for adam in self.optimizers.values() for p in adam.parameters] if self.histograms_due else []
        for parameter in parameters:
            parameter.grad = None
        # The execution samples a batch and computes the update, or replays a recording of it.
        metrics, outputs = self.execution(self, replay_buffer)
        if hasattr(replay_buffer, "update_priorities"):  # it draws by priority
            replay_buffer.update_priorities(outputs["index"], outputs["priorities"])
        logger.log_all(metrics, step)
        if self.histograms_due and all(parameter.grad is not None for parameter in parameters):
            log_histograms(outputs, self.optimized, logger, step)
            self.histograms_due = False
        self.num_updates += 1

    @cached_property
    def noise(self) -> Noise:
        """The random numbers of updates, from the generator of `policy`."""
        return Noise(self.policy)

    def give_noise(self, noise: Noise | None) -> None:
        """Gives all layers that draw random numbers in updates their source."""
        for layer in self._hooks[Draws]:
            layer.noise = noise

    def compute_update(self, batch: Batch, noise: Noise) -> Result:
        """Runs the device's part of an update: prepares the batch and calls `update_step`."""
        self.give_noise(noise)
        prepared = self._prepare(batch, noise)
        step = self.update_step if self.compiled_step is None else self.compiled_step
        metrics, outputs = step(prepared, noise)
        self.give_noise(None)
        metrics["train/batch_reward"] = batch.reward.mean()  # as stored, before normalising and scaling
        return metrics, outputs

    def _prepare(self, batch: Batch, noise: Noise) -> Batch:
        """Returns the batch that the losses use: views of images, normalised observations, scaled rewards."""
        batch = self.observations.views(batch, noise)
        if self.observation_normaliser is not None:
            obs, next_obs = self.observation_normaliser(batch.obs), self.observation_normaliser(batch.next_obs)
            batch = batch._replace(obs=obs, next_obs=next_obs)
        reward = batch.reward if self.reward_normaliser is None else self.reward_normaliser(batch.reward)
        return batch._replace(reward=self.schedules.reward_scale * reward)

    def recording_obstacle(self) -> str | None:
        if not self.schedules.changing:
            return None
        names = ", ".join(f"agent.{name}" for name in self.schedules.changing)
        return f"{names} on a schedule would be frozen in it"

    # What is found in the attributes: modules, and hooks (agent/toolkit/hooks.py), searched for once, on first use.

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The modules in the agent's attributes, without views, which share the state of another module."""
        return {
            name: value for name, value in vars(self).items() if isinstance(value, nn.Module) and not is_view(value)
        }

    @cached_property
    def _after_step(self) -> dict[str, list[Any]]:
        return {name: _instances(AfterStep, [module]) for name, module in self.optimized.items()}

    @cached_property
    def _hooks(self) -> dict[type, list[Any]]:
        attributes, modules = vars(self).values(), self.modules.values()
        others = [value for value in attributes if not isinstance(value, nn.Module)]
        return {
            Draws: _instances(Draws, attributes),  # views too, which have own layers
            Phased: _instances(Phased, modules),
            Scheduled: _instances(Scheduled, [*others, *self.optimizers.values(), *modules]),
            TracksBatchStatistics: _instances(TracksBatchStatistics, modules),
        }

    # State.

    def _stateful(self) -> dict[str, Any]:
        """Returns the modules and all other attributes with a `load_state_dict`, by name, without views."""
        _ = self.policy  # built when it is first read, and part of the state
        attributes = vars(self).items()
        return {name: value for name, value in attributes if hasattr(value, "load_state_dict") and not is_view(value)}

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: value.state_dict() for name, value in self._stateful().items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "num_updates": self.num_updates,
            "histograms_due": self.histograms_due,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in self._stateful().items():
            value.load_state_dict(state[name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.num_updates = state["num_updates"]
        self.histograms_due = state["histograms_due"]

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise TypeError("an agent's networks share memory: build another agent and load this one's state_dict()")


def _instances(kind: type, values: Iterable[Any]) -> list[Any]:
    """Returns the instances of a class among the values and their submodules, each once, in order."""
    instances: dict[int, Any] = {}
    for value in values:
        candidates = value.modules() if isinstance(value, nn.Module) else [value]
        instances |= {id(candidate): candidate for candidate in candidates if isinstance(candidate, kind)}
    return list(instances.values())


def takes_tensors(agent: Any) -> bool:
    """Returns whether `act` and `observe` are OffPolicyAgent's, which take tensors on the device as well as arrays."""
    methods = getattr(type(agent), "act", None), getattr(type(agent), "observe", None)
    return methods == (OffPolicyAgent.act, OffPolicyAgent.observe)
