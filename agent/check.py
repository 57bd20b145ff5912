"""Checks an agent for its author: `python -m agent.check NAME`, of config/agent/NAME.yaml, or `.../agent/NAME.yaml`.

It makes updates on random data and says in one line each what would cost hours if it were found late; exit code 1.
"""

import copy
import math
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from torch import Tensor, nn

from agent.execution.audit import find_difference
from agent.execution.recorded import Recorded
from agent.execution.tracing import DispatchMode
from replay_buffer import Batch, WeightedBatch
from settings.compose import compose_settings
from utils import leaves

ROWS, OBS_DIM, ACTION_DIM, IMAGE = 13, 17, 6, (9, 84, 84)


def draw_batch(agent: Any, generator: torch.Generator, weights: np.ndarray | None) -> Any:
    spec = agent.observations.spec
    ends = torch.randn(2, ROWS, *spec.shape, generator=generator)
    obs, next_obs = ends if spec.image is None else (50 * ends.abs()).to(torch.uint8)
    action = torch.rand(ROWS, ACTION_DIM, generator=generator)
    action = (ACTION_DIM * action[:, :1]).floor() if agent.discrete_actions else 2 * action - 1
    reward, discount = torch.randn(2, ROWS, 1, generator=generator)
    batch = Batch(obs, action, reward, next_obs, (discount > -1).float())
    return batch if weights is None else WeightedBatch(*batch, torch.as_tensor(weights), torch.arange(ROWS))


def train(agent: Any, updates: int, seed: int = 0, weights: np.ndarray | None = None) -> list[Any]:
    """Makes updates on random data, the same for every agent; returns the metrics of each, and the state afterwards."""
    metrics, generator = list[Any](), torch.Generator().manual_seed(seed)
    buffer = SimpleNamespace(sample=lambda rows: draw_batch(agent, generator, weights))
    logger = SimpleNamespace(log_all=lambda new, step: metrics.append(dict(new)), histograms_due=lambda step: False)
    for step in range(updates):
        agent.update(buffer, logger, step)
    return [*metrics, agent.state_dict()]


class FindMatrices(DispatchMode):
    """Adds operations to `found` that combine columns (count,) and (..., count, 1) into a matrix."""

    def __init__(self, count: int, found: list[str]):
        super().__init__()
        self._count, self._found = count, found

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, count = function(*args, **(kwargs or {})), self._count
        if isinstance(result, Tensor) and result.shape[-2:] == (count, count) and result.is_floating_point():
            shapes = [tuple(value.shape) for value in args if isinstance(value, Tensor)]
            if (count,) in shapes and any(shape[-2:] == (count, 1) for shape in shapes):
                caller = [frame for frame in traceback.extract_stack()[:-1] if "/torch/" not in frame.filename][-1]
                self._found.append(f"{caller.filename}:{caller.lineno}: (B,) beside (B, 1) becomes a matrix (B, B)")
        return result


def find_forgotten(agent: Any) -> Iterator[str]:
    """Yields weights that would not learn, or that no checkpoint would hold."""
    learned = {id(parameter) for adam in agent.optimizers.values() for parameter in adam.parameters}
    held = {value.data_ptr() for _, value in leaves(agent.state_dict()) if isinstance(value, Tensor)}
    for name, value in vars(agent).items():
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if name not in ("optimizers", "optimized") and any(hasattr(item, "load_state_dict") for item in items):
            yield f"self.{name} holds parts that no checkpoint holds: use attributes, or a torch.nn.ModuleList"
        if isinstance(value, Tensor) and value.requires_grad:
            yield f"self.{name} is a tensor that should learn: put it into a torch.nn.Module with an optimizer"
    for name, adam in agent.optimizers.items():
        if any(parameter.data_ptr() not in held for parameter in adam.parameters):
            yield f"the optimizer {name!r} steps weights that no checkpoint holds: make their module an attribute"
    for name, module in {"convolutions": agent.observations.learned or nn.Module(), **agent.modules}.items():
        if any(parameter.requires_grad and id(parameter) not in learned for parameter in module.parameters()):
            yield f"no optimizer steps {name}: add_optimizer, requires_grad_(False), or build(..., learns_encoder=True)"


def watch_update(agent: Any) -> list[str]:
    """Makes an update in which everything is due; returns what it did that a run would suffer from in silence."""
    found, stepped = list[str](), set[str]()
    step, step_optimizers, critic_loss = agent.update_step, agent.step_optimizers, agent.critic_loss

    def watch_step(batch: Any, noise: Any) -> Any:
        versions = [column._version for column in batch]
        with FindMatrices(len(batch.reward), found):
            result = step(batch, noise)
        if versions != [column._version for column in batch]:
            found.append("the step changes its batch in place, which later updates read: make a new tensor")
        return result

    def watch_losses(**losses: Tensor) -> None:
        stepped.update(losses)
        for name, other in permutations(losses if agent._collected is None else (), 2):
            others = agent.optimizers[other].parameters
            moved = torch.autograd.grad(losses[name], others, retain_graph=True, allow_unused=True)
            if any(gradient is not None for gradient in moved):
                found.append(f"the loss {name!r} moves the weights of {other!r}: use a frozen_view of them")
        step_optimizers(**losses)

    def watch_target(outputs: Tensor, target: Tensor, *weight: Any) -> Tensor:
        if target.requires_grad:
            found.append("the critic's target has a gradient: compute it under torch.no_grad()")
        return critic_loss(outputs, target, *weight)

    watched = {"update_step": watch_step, "step_optimizers": watch_losses, "critic_loss": watch_target}
    vars(agent).update(watched, due=lambda *_, **__: True)
    random_states = global_states()
    weights = np.linspace(0.1, 1, ROWS, dtype=np.float32) if agent.supports_prioritised_replay else None
    *_, metrics, _ = train(agent, 1, weights=weights)
    if random_states != global_states():
        found.append("the step draws from a global generator: take random numbers from its argument `noise`")
    found += [f"the optimizer {name!r} never steps" for name in agent.optimizers.keys() - stepped]
    for key, value in metrics.items():
        if not isinstance(value, Tensor) or value.numel() != 1 or value.requires_grad:
            found.append(f"the metric {key!r} is no detached tensor of one element")
    return list(dict.fromkeys(found))


def global_states() -> str:
    return str((torch.get_rng_state().tolist(), np.random.get_state(), random.getstate()))


def find_mistakes(make: Callable[[int], Any]) -> list[str]:
    """Returns an author's mistakes, in one line each; `make` builds the agent with a seed."""
    mistakes = [*find_forgotten(make(0)), *watch_update(make(0))]
    if mistakes:
        return mistakes
    eager, recorded, restored = make(0), make(0), make(1)
    recorded.execution = Recorded()
    changed = find_difference(train(eager, 8), train(recorded, 8))
    if changed and not eager.recording_obstacle():
        mistakes.append(f"a recording freezes what changes {changed}: a schedule, self.due or a buffer does not")
    restored.load_state_dict(copy.deepcopy(eager.state_dict()))
    if changed := find_difference(train(eager, 4, seed=1), train(restored, 4, seed=1)):
        mistakes.append(f"state_dict does not restore all that the step uses: {changed} differs")
    if eager.supports_prioritised_replay:
        weights = np.ones(ROWS), np.linspace(0.1, 1, ROWS)
        if not find_difference(*(train(make(0), 1, weights=weight.astype(np.float32)) for weight in weights)):
            mistakes.append("the step ignores batch.weight, which the critics' loss needs")
    return mistakes


def read_node(name: str) -> dict[str, Any]:
    """Returns the agent's node, checked as a run checks it."""
    path = Path(name)
    search = [f"hydra.searchpath=[file://{path.resolve().parents[1]}]"] if path.suffix else []
    agent = compose_settings(f"agent={path.stem}", *search).agent
    return {key: value for key, value in agent.items() if key != "name"}


def build(node: dict[str, Any], seed: int) -> Any:
    """Builds the agent for random observations: images if it has an encoder, otherwise vectors."""
    torch.manual_seed(seed)
    obs = {"obs_dim": math.prod(IMAGE), "obs_shape": list(IMAGE)} if node.get("encoder") else {"obs_dim": OBS_DIM}
    shapes = obs | {"action_dim": ACTION_DIM, "action_range": (-1.0, 1.0), "device": torch.device("cpu")}
    agent = instantiate(node, _convert_="all")(**shapes)
    agent.batch_size = ROWS
    return agent


def main(name: str) -> int:
    node = read_node(name)
    mistakes = find_mistakes(lambda seed: build(node, seed))
    print(*(f"{name}: {mistake}" for mistake in mistakes or ["no mistake found"]), sep="\n")
    return bool(mistakes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
