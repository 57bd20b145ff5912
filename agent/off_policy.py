"""What the agents share: acting, the shell around an update, histograms, optimizers, state."""

from abc import abstractmethod
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import nn

from agent import Agent
from agent.adam import Adam
from agent.execution import Eager
from agent.layers import Dropout
from agent.mlp import Linear
from agent.policy import Policy, recipe, save_policy
from agent.schedule import Scheduled
from utils import Betas, Factory, NonNegativeFloat, PositiveInt, Schedule, evaluation_view

LearningRate = NonNegativeFloat | Schedule
Metrics = dict[str, Any]  # log key -> detached scalar tensor, or a number
Seen = dict[str, torch.Tensor]  # what an update saw, for histograms: q (N, B, 1), mu and log_std; not all in each


class Shared(TypedDict, total=False):
    """Keys of every off-policy agent, each off unless it is given; a subclass passes them on as `**shared`.

    observation_normaliser, reward_normaliser: factories of what is in agent.normalise.
    exploration: factory of what holds the noise of training's actions (agent.exploration).
    actor_weight_decay, critic_weight_decay: AdamW's; a value network has the critic's.
    """

    observation_normaliser: Factory | None
    reward_normaliser: Factory | None
    exploration: Factory | None
    actor_weight_decay: NonNegativeFloat
    critic_weight_decay: NonNegativeFloat


class OffPolicyAgent(Agent):
    """An actor that acts, and an update step on batches; subclasses say which networks and what step.

    Args:
        obs_dim, action_dim: widths of observation and action.
        actor, critic: factories of networks, called with `obs_dim` and `action_dim`.
        action_range: (low, high) that actions are clamped to.
        device: where networks and batches live.
        batch_size: transitions an update.
        actor_update_frequency: updates between two of the actor.
        shared: see Shared.
    """

    noises_per_update = 1  # how often an update step samples the policy

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        actor: Factory,
        critic: Factory,
        action_range: tuple[float, float],
        device: torch.device,
        batch_size: PositiveInt,
        actor_update_frequency: PositiveInt,
        **shared: Unpack[Shared],
    ):
        shapes = {"obs_dim": obs_dim, "action_dim": action_dim}
        self.device = device
        self.batch_size = batch_size
        self.actor_update_frequency = actor_update_frequency
        self.actor = actor(**shapes).to(device)
        self.critic = critic(**shapes).to(device)
        self.modules: dict[str, Any] = {}  # by name; those with an optimizer have a learning rate <name>_lr
        self.optimizers: dict[str, Adam] = {}
        self._follow_step: list[Any] = []  # modules with numbers of their own on a schedule
        self._after_step: dict[str, list[Any]] = {}  # by name of a module: what its parts do behind an optimizer's step
        self._drawn: list[tuple[Any, int]] = []  # what draws before an update, and for how many rows
        self.numbers = Scheduled()
        self.num_updates = 0
        self.pattern: dict[int, bool] = {}  # by each frequency asked about so far: is it due in this update?
        self.execution: Any = Eager()  # see agent.execution
        self.run_update_step = self.update_step  # or that, compiled
        self._histograms_due = False
        # Its own generator, so that nothing else that draws (an environment, an evaluation) shifts the noise.
        generator = torch.Generator(device).manual_seed(torch.initial_seed())
        acting = evaluation_view(self.actor), evaluation_view(self.critic)  # which no batch's statistics enter
        self.policy = Policy(*acting, action_range, device, generator)
        self._recipes = {"actor": recipe(actor, **shapes), "critic": recipe(critic, **shapes)}
        self._build_shared(obs_dim, **shared)

    def _build_shared(self, obs_dim: int, **shared: Unpack[Shared]) -> None:
        actor_decay, critic_decay = shared.get("actor_weight_decay", 0.0), shared.get("critic_weight_decay", 0.0)
        self._weight_decays = {"actor": actor_decay, "critic": critic_decay, "value": critic_decay}
        normaliser, rewards = shared.get("observation_normaliser"), shared.get("reward_normaliser")
        exploration = shared.get("exploration")
        self.observation_normaliser = normaliser(obs_dim=obs_dim).to(self.device) if normaliser else None
        self.reward_normaliser = rewards(device=self.device) if rewards else None
        self.exploration = exploration(device=self.device) if exploration else None
        if normaliser:
            self.modules["observation_normaliser"] = self.policy.normaliser = self.observation_normaliser
            self._recipes["observation_normaliser"] = recipe(normaliser, obs_dim=obs_dim)

    @abstractmethod
    def update_step(self, batch: Any, noise: torch.Tensor) -> tuple[Metrics, Seen]:
        """One update from given tensors alone.

        Python runs in the first updates only, until the operations are recorded or captured (see agent.execution). So
        what changes with time is a tensor, a number of `self.numbers` (a rate: `optimizers[name].lr.clone()`), or
        asked of `due`; `execution=eager` runs every line every time, for a breakpoint or a print.

        Args:
            batch: obs, action, reward, next_obs, not_done (see replay_buffer.Batch).
            noise: standard normal, (`noises_per_update` * B, actor.noise_dim).

        Returns:
            Scalars to average, by log key, and what histograms are made of; detached and on the device.
        """

    def add_optimizer(self, name: str, module: nn.Module, betas: Betas) -> None:
        """Adam for a module, under `optimizers[name]`; its learning rate is the number `<name>_lr`."""
        self.modules[name] = module
        if hasattr(module, "set_step"):
            self._follow_step.append(module)
        self._after_step[name] = [part.after_step for part in module.modules() if hasattr(part, "after_step")]
        parameters = list(module.parameters())
        if parameters:
            lr = getattr(self.numbers, f"{name}_lr")
            self.optimizers[name] = Adam(parameters, lr, betas, self._weight_decays.get(name, 0.0))

    def descend(self, **loss_of: torch.Tensor) -> None:
        """A gradient step of each named module on its loss, all from the values before any step.

        Only the named modules' gradients are computed: a critic's are not while the actor climbs it. One pass back for
        all, so no loss may depend on the parameters of another's module.
        """
        optimizers = [self.optimizers[name] for name in loss_of]
        parameters = [parameter for optimizer in optimizers for parameter in optimizer.parameters]
        gradients = torch.autograd.grad(tuple(loss_of.values()), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        for name, optimizer in zip(loss_of, optimizers, strict=True):
            optimizer.step()
            for after_step in self._after_step[name]:
                after_step()

    def draws(self, module: nn.Module, num_rows: int) -> None:
        """Lets a module that an update step passes `num_rows` rows through once draw what it drops before each."""
        self._drawn += [(part, num_rows) for part in module.modules() if isinstance(part, Dropout)]

    def train(self, training: bool = True) -> None:
        super().train(training)
        for module in self.modules.values():
            module.train(training)

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        return self.policy.act(obs, sample, self.exploration if self.training else None)

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
            self.reward_normaliser.observe(reward, terminated | truncated, self.numbers.discount)
        if self.exploration is not None:
            self.exploration.release(terminated | truncated)

    def save_policy(self, path: Path) -> None:
        """Writes the policy alone (see agent.policy.load_policy), the critic with it where acting asks it."""
        needed = [name for name in self._recipes if name != "critic" or not self.actor.acts_alone]
        save_policy(self.policy, {name: self._recipes[name] for name in needed}, path)

    def update(self, replay_buffer: Any, logger: Any, step: int) -> None:
        self.set_step(step)
        metrics, seen = self.execution(self, replay_buffer)
        logger.log_all(metrics, step)
        self._histograms_due |= logger.histograms_due(step)
        if self._histograms_due and self.due(self.actor_update_frequency):  # the first update that has them all
            self._log_histograms(seen, logger, step)
            self._histograms_due = False
        self._count_updates(self.num_updates + 1)

    def draw_noise(self) -> torch.Tensor:
        """An update's, as `update_step` takes it; what drops or picks at random draws too."""
        for part, num_rows in self._drawn:
            part.draw(num_rows, self.policy.generator)
        return self.policy.noise(self.noises_per_update * self.batch_size)

    def update_on(self, batch: Any, noise: torch.Tensor) -> tuple[Metrics, Seen]:
        """What an update does on the device, from a batch and noise."""
        # No cache of casts: one that a captured graph filled would be read after its memory was reused.
        dtype = self.autocast_dtype
        with torch.autocast(self.device.type, dtype, cache_enabled=False) if dtype else nullcontext():
            metrics, seen = self.run_update_step(self._normalised(batch), noise)
        metrics["train/batch_reward"] = batch.reward.mean()
        return metrics, seen

    def _normalised(self, batch: Any) -> Any:
        """The batch as the losses see it; what is stored and logged is raw."""
        if self.observation_normaliser is not None:
            obs, next_obs = self.observation_normaliser(batch.obs), self.observation_normaliser(batch.next_obs)
            batch = batch._replace(obs=obs, next_obs=next_obs)
        if self.reward_normaliser is not None:
            batch = batch._replace(reward=self.reward_normaliser(batch.reward))
        return batch

    def set_step(self, step: int) -> None:
        """Gives numbers and learning rates on a schedule their values at this environment step."""
        self.numbers.set_step(step)
        for name, optimizer in self.optimizers.items():
            optimizer.set_lr(getattr(self.numbers, f"{name}_lr"))
        for module in self._follow_step:
            module.set_step(step)

    def due(self, frequency: int) -> bool:
        """Whether what happens every `frequency` updates happens in this one."""
        if frequency not in self.pattern:
            self.pattern[frequency] = self.num_updates % frequency == 0
        return self.pattern[frequency]

    def _count_updates(self, num_updates: int) -> None:
        self.num_updates = num_updates
        self.pattern = {frequency: num_updates % frequency == 0 for frequency in self.pattern}

    def constants_on_schedule(self) -> list[str]:
        """Numbers that change with the step and are no tensors: compiled or captured, an update would freeze them."""
        in_tensors = {f"{name}_lr" for name in self.optimizers}
        return [name for name in self.numbers.on_schedule if name not in in_tensors]

    def _log_histograms(self, seen: Seen, logger: Any, step: int) -> None:
        values = {f"train_critic/q{i}_hist": member for i, member in enumerate(seen["q"], start=1)}
        values |= {"train_actor/mu_hist": seen["mu"], "train_actor/std_hist": seen["log_std"].exp()}
        for key, tensor in values.items():
            logger.log_histogram(key, tensor, step, log_frequency=1)
        for name, module in self.modules.items():
            if name not in self.optimizers or not hasattr(module, "trunk"):
                continue
            for index, layer in module.trunk.named_modules():
                if not isinstance(layer, Linear):
                    continue
                for member in [None] if layer.num_members is None else range(layer.num_members):
                    prefix = "" if member is None else f"q{member + 1}_"
                    key = f"train_{name}/{prefix}fc{index}"
                    logger.log_param(key, layer, step, log_frequency=1, member=member)

    def _parts(self) -> dict[str, Any]:
        optimizers = {f"{name}_optimizer": optimizer for name, optimizer in self.optimizers.items()}
        followers = {"reward_normaliser": self.reward_normaliser, "exploration": self.exploration}
        present = {name: part for name, part in followers.items() if part is not None}
        return {**self.modules, **optimizers, "numbers": self.numbers, **present}

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        counters = {"num_updates": self.num_updates, "histograms_due": self._histograms_due}
        return state | counters | {"policy": self.policy.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.policy.load_state_dict(state["policy"])
        self._count_updates(state["num_updates"])
        self._histograms_due = state["histograms_due"]
