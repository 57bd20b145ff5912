"""A stand-in for CUDA graphs on the CPU, and tools to compare ways of executing updates."""

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import composed
import numpy as np
import torch
from agents import ACTION_DIM, FROM_IMAGES, IMAGE, OBS_DIM, SMALL, STACK, TINY, Silent
from meta_device import tensors_in

from agent.execution import Result
from agent.execution.captured import Update
from replay import frames
from replay.device import STORAGES
from replay.frames import FrameBuffer
from replay_buffer import ReplayBuffer
from settings.compose import CONFIG_DIR
from settings.obs_spec import ObsSpec

CPU = torch.device("cpu")
DELAYED = ("agent.actor_update_frequency=2", "agent.critic_target_update_frequency=2")
OUT_OF_STEP = ("agent.actor_update_frequency=2", "agent.critic_target_update_frequency=3")
FOLLOWERS = (
    *("agent/observation_normaliser=running", "agent/reward_normaliser=returns", "agent.critic_weight_decay=0.1"),
    "agent.actor_average_share=0.2",
)
RENORM = tuple(f"agent.{part}.network.norm.renorm_after=3" for part in ("actor", "critic"))
SLOW = tuple(f"agent.{part}_lr=1e-4" for part in ("alpha", "actor", "critic"))  # Adam's first steps magnify rounding
FLAT = tuple(f"agent.{part}.hidden_depth=1" for part in ("actor", "critic"))  # deeper networks take longer to trace
SHORT = (*SMALL, *FLAT, *SLOW)
AGENTS = {
    "sac": SMALL,
    "followers": (*SMALL, *FOLLOWERS),
    "td3": ("agent=td3", *SMALL),
    "self_predictive": ("agent=self_predictive", *SMALL, "agent.target_update_frequency=3"),
    "drq": ("agent=drq", *SMALL, *TINY, *SLOW),
    "crossq": ("agent=crossq", *SHORT, *RENORM),
}
AGENTS |= {name: (f"agent={name}", *SMALL, "agent.value.hidden_dim=16") for name in ("sac_v", "sac_2018")}
for name in ("flash_sac", "xqc", "simba", "redq", "droq", "sac_discrete", "tqc"):
    AGENTS[name] = (f"agent={name}", *SHORT)


def _from_pixels(*names: str) -> dict[str, tuple[str, ...]]:
    return {f"{name} from pixels": (*AGENTS[name], *FROM_IMAGES) for name in names}


AGENTS |= _from_pixels("td3", "crossq")
# More combinations of the same parts, for `make thorough`.
MORE = _from_pixels("sac_v", "sac_2018", "tqc", "sac_discrete", "redq", "flash_sac")
MORE["flash_sac from pixels"] += ("agent.augmentation.num_views=1",)

# Changes made to an agent one after another, in the middle of its training.
CHANGES: list[dict[str, Any]]
CHANGES = [{}, {"training": False}, {"batch_size": 8}, {"batch_size": 32}]


def delayed(name: str) -> tuple[str, ...]:
    """Returns overrides that update actor and targets every other time, as far as the agent has the keys."""
    agent = name.partition(" ")[0]
    keys = composed.settings(f"agent={agent}" if (CONFIG_DIR / f"agent/{agent}.yaml").exists() else "agent=sac").agent
    return tuple(text for text in DELAYED if text.partition("=")[0].removeprefix("agent.") in keys)


class StandInGraphs:
    """Captures as CUDA does. A capture changes no tensor and advances no generator. A replay repeats the captured work,
    on the memory and with the numbers of the capture, and changes no Python variable.
    """

    def __init__(self, agent: Any):
        self.agent = agent
        self.captures = 0
        self.replays = 0

    def warm_up(self, update: Update) -> Result:
        return update()

    def capture(self, update: Update, generators: list[torch.Generator]) -> tuple[Result, Callable[[], None]]:
        self.captures += 1
        assert self.agent.policy.generator in generators
        constants = {name: value for name, value in vars(self.agent).items() if isinstance(value, int | float)}
        constants |= {"due_now": dict(self.agent.due_now), "schedules": copy(self.agent.schedules)}
        modes = self._modes()
        states, kept = [generator.get_state() for generator in generators], deepcopy(self.agent.state_dict())
        unregistered, memory = torch.get_rng_state(), self._memory()
        result = update()
        assert torch.equal(torch.get_rng_state(), unregistered), "drew from a generator that was not registered"
        self.agent.load_state_dict(kept)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        for tensor in tensors_in(result):
            tensor.fill_(torch.nan if tensor.is_floating_point() else 0)  # a capture's result holds no values yet

        def replay() -> None:
            self.replays += 1
            assert self._memory() == memory, "the graph would work on what was there before"
            now, modes_now = {name: getattr(self.agent, name) for name in constants}, self._modes()
            gradients = {p: p.grad for module in self.agent.modules.values() for p in module.parameters()}
            vars(self.agent).update(constants)
            _set_modes(modes)
            new = update()
            _set_modes(modes_now)
            for tensor, value in zip(tensors_in(result), tensors_in(new), strict=True):
                tensor.copy_(value)
            for parameter, gradient in gradients.items():
                parameter.grad = gradient
            vars(self.agent).update(now)

        return result, replay

    def _modes(self) -> dict[Any, bool]:
        parts = [part for part in vars(self.agent).values() if isinstance(part, torch.nn.Module)]
        return {module: module.training for part in parts for module in part.modules()}

    def _memory(self) -> list[int]:
        """Returns the addresses of the networks' and optimizers' tensors."""
        networks = [module.state_dict() for module in self.agent.modules.values()]
        return [t.data_ptr() for t in tensors_in([networks, [vars(o) for o in self.agent.optimizers.values()]])]


def _set_modes(modes: dict[Any, bool]) -> None:
    for module, training in modes.items():
        module.training = training


def fill(buffer: ReplayBuffer, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(count):
        if isinstance(buffer, FrameBuffer):
            obs, next_obs = random.integers(0, 256, (2, *buffer.obs_spec.shape), np.uint8)
        else:
            obs, next_obs = random.standard_normal((2, OBS_DIM), np.float32)
        discrete = getattr(buffer, "_widths", (0, ACTION_DIM))[1] == 1
        action = random.integers(ACTION_DIM, size=1) if discrete else random.uniform(-1, 1, ACTION_DIM)
        buffer.add(obs, action.astype(np.float32), random.uniform(), next_obs, False, bool(random.integers(2)))


def make_buffer(storage: str, device: torch.device = CPU, images: bool = False, discrete: bool = False) -> ReplayBuffer:
    """Makes a buffer for 60 rows and adds 40; of images, the newest 31 still have all their frames."""
    spec = ObsSpec(IMAGE, frame_stack=STACK) if images else ObsSpec(vector_dim=OBS_DIM)
    options = {"obs_spec": spec} if images else {}
    kinds = frames.STORAGES if images else STORAGES
    buffer = kinds[storage](spec.shape, (1 if discrete else ACTION_DIM,), 60, device, **options)
    fill(buffer, 40, seed=0)
    return buffer


def buffer_for(agent: Any, storage: str) -> ReplayBuffer:
    """Makes a buffer of the observations and actions that the agent has."""
    return make_buffer(storage, agent.device, agent.observations.spec.image is not None, agent.discrete_actions)


def train(agent: Any, buffer: ReplayBuffer | str, updates: int) -> list[dict[str, Any]]:
    """Makes updates on a buffer, or on a new one of that storage, adding rows between; returns each update's log.

    The agent observes other numbers than the buffer gets, so the running scales that it follows change a lot.
    """
    buffer = buffer_for(agent, buffer) if isinstance(buffer, str) else buffer
    logged = []
    for step in range(updates):
        log = Silent()
        agent.update(buffer, log, step)
        logged.append(log.values)
        fill(buffer, 3, seed=step + 1)
        obs = np.random.default_rng(step).normal(step, 3, (2, OBS_DIM)).astype(np.float32)
        ends = np.array([False, step % 3 == 0])
        agent.observe(obs, np.zeros((2, ACTION_DIM)), obs[:, 0], obs + 1, ends, ends)
    return logged


def assert_same(ours: Any, theirs: Any, **tolerance: float) -> None:
    torch.testing.assert_close(ours, theirs, **(tolerance or {"rtol": 0.0, "atol": 0.0}))


def learned(agent: Any) -> dict[str, Any]:
    return {name: value for name, value in agent.state_dict().items() if name != "schedules"}
