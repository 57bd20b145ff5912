"""What the agents share: acting, the shell around an update, histograms, optimizers, state."""

from abc import abstractmethod
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from agent import Agent
from agent.adam import Adam
from agent.execution import Eager
from agent.mlp import Linear
from agent.policy import Policy, recipe, save_policy
from agent.schedule import Scheduled
from utils import Betas, Factory, NonNegativeFloat, PositiveInt, Schedule

LearningRate = NonNegativeFloat | Schedule
Metrics = dict[str, Any]  # log key -> detached scalar tensor, or a number
Seen = dict[str, torch.Tensor]  # what an update saw, for histograms: q (N, B, 1), mu and log_std; not all in each


class OffPolicyAgent(Agent):
    """An actor that acts, and an update step on batches; subclasses say which networks and what step.

    Args:
        obs_dim, action_dim: widths of observation and action.
        actor, critic: factories of networks, called with `obs_dim` and `action_dim`.
        action_range: (low, high) that actions are clamped to.
        device: where networks and batches live.
        batch_size: transitions an update.
        actor_update_frequency: updates between two of the actor.
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
        self.numbers = Scheduled()
        self.num_updates = 0
        self.pattern: dict[int, bool] = {}  # by each frequency asked about so far: is it due in this update?
        self.execution: Any = Eager()  # see agent.execution
        self.run_update_step = self.update_step  # or that, compiled
        self._histograms_due = False
        # Its own generator, so that nothing else that draws (an environment, an evaluation) shifts the noise.
        generator = torch.Generator(device).manual_seed(torch.initial_seed())
        self.policy = Policy(self.actor, self.critic, action_range, device, generator)
        self._recipes = {"actor": recipe(actor, **shapes), "critic": recipe(critic, **shapes)}

    @abstractmethod
    def update_step(self, batch: Any, noise: torch.Tensor) -> tuple[Metrics, Seen]:
        """One update from given tensors alone.

        Python runs in the first updates only, until the operations are recorded or captured (see agent.execution). So
        what changes with time is a tensor, a number of `self.numbers`, or asked of `due`; `execution=eager` runs every
        line every time, for a breakpoint or a print.

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
        parameters = list(module.parameters())
        if parameters:
            lr = getattr(self.numbers, f"{name}_lr")
            self.optimizers[name] = Adam(parameters, lr, betas)

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
        for optimizer in optimizers:
            optimizer.step()

    def train(self, training: bool = True) -> None:
        super().train(training)
        for module in self.modules.values():
            module.train(training)

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        return self.policy.act(obs, sample)

    def save_policy(self, path: Path) -> None:
        """Writes the policy alone (see agent.policy.load_policy), the critic with it where acting asks it."""
        needed = ["actor"] if self.actor.acts_alone else ["actor", "critic"]
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
        """An update's, as `update_step` takes it."""
        return self.policy.noise(self.noises_per_update * self.batch_size)

    def update_on(self, batch: Any, noise: torch.Tensor) -> tuple[Metrics, Seen]:
        """What an update does on the device, from a batch and noise."""
        # No cache of casts: one that a captured graph filled would be read after its memory was reused.
        dtype = self.autocast_dtype
        with torch.autocast(self.device.type, dtype, cache_enabled=False) if dtype else nullcontext():
            metrics, seen = self.run_update_step(batch, noise)
        metrics["train/batch_reward"] = batch.reward.mean()
        return metrics, seen

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
            for index, layer in enumerate(module.trunk):
                if not isinstance(layer, Linear):
                    continue
                for member in [None] if layer.num_members is None else range(layer.num_members):
                    prefix = "" if member is None else f"q{member + 1}_"
                    key = f"train_{name}/{prefix}fc{index}"
                    logger.log_param(key, layer, step, log_frequency=1, member=member)

    def _parts(self) -> dict[str, Any]:
        optimizers = {f"{name}_optimizer": optimizer for name, optimizer in self.optimizers.items()}
        return {**self.modules, **optimizers, "numbers": self.numbers}

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
