"""Prioritised replay: what is drawn, what weights do to the losses, what the buffer gets back, and what is refused."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from agents import ACTION_DIM, FROM_IMAGES, IMAGE, OBS_DIM, SMALL, STACK, TINY, Always, Silent, make_agent, make_batch
from forks import ForkAgent
from stand_in_graphs import AGENTS, StandInGraphs, assert_same, fill, learned, make_buffer, train

from agent import require_support
from agent.execution.captured import Captured
from agent.networks.heads import CategoricalHead, HuberHead, QuantileHead, ScalarHead
from replay.frames import FrameBuffer
from replay.sampling import Prioritised
from replay_buffer import Batch, ReplayBuffer, WeightedBatch
from run.execution import set_execution
from settings.obs_spec import ObsSpec
from utils import UserError

CPU = torch.device("cpu")
HEADS = {
    "scalar": ScalarHead(),
    "Huber": HuberHead(),
    "quantile": QuantileHead(5, 1),
    "categorical": CategoricalHead(7, (-3.0, 3.0)),
}
CATEGORICAL = "agent.critic.head={_target_: agent.networks.CategoricalHead, _partial_: true}"
DIFFERENT = [
    pytest.param(name, marks=() if name in ("sac", "tqc", "crossq", "drq") else pytest.mark.thorough)
    for name in ("sac", "td3", "tqc", "crossq", "flash_sac", "drq", "sac_discrete")
]
BY_HAND = {  # agents whose values depend only on the critics' weights and the batch's obs and action
    "sac": ("agent=sac",),
    "td3": ("agent=td3",),
    "tqc": ("agent=tqc", "agent.critic.head.num_quantiles=5"),
    "sac, categorical": ("agent=sac", CATEGORICAL),
}


def prioritised(images: bool = False, discrete: bool = False) -> Any:
    """A buffer that holds 40 rows."""
    if not images:
        buffer = ReplayBuffer((OBS_DIM,), (1 if discrete else ACTION_DIM,), 60, CPU, sampling=Prioritised)
        fill(buffer, 40, seed=0)
        return buffer
    frames = FrameBuffer(
        IMAGE, (ACTION_DIM,), 60, CPU, sampling=Prioritised, obs_spec=ObsSpec(IMAGE, frame_stack=STACK)
    )
    random = np.random.default_rng(0)
    film = random.integers(0, 256, (44, 3, *IMAGE[1:]), np.uint8)  # each row has STACK + 1 of these frames
    for i in range(40):
        action = random.uniform(-1, 1, ACTION_DIM).astype(np.float32)
        obs, next_obs = np.concatenate(film[i : i + 2]), np.concatenate(film[i + 1 : i + 3])
        frames.add(obs, action, random.uniform(), next_obs, False, bool(random.integers(2)))
    return frames


class Remembers(Always):
    """A buffer with one batch that keeps the priorities it gets back."""

    def update_priorities(self, index: torch.Tensor, priorities: torch.Tensor) -> None:
        self.index, self.priorities = index.clone(), priorities.clone()


def weighted(batch: Batch, weight: torch.Tensor | None = None) -> WeightedBatch:
    """Adds weights, random unless given, and a different index for each row."""
    count = len(batch.obs)
    if weight is None:
        weight = torch.rand(count, generator=torch.Generator().manual_seed(2))
    return WeightedBatch(*batch, weight, 1000 + 3 * torch.arange(count))  # type: ignore[call-arg]


@pytest.mark.parametrize("images", [False, True])
def test_a_sample_in_two_halves_has_weights_too(images: bool) -> None:
    whole, halves = prioritised(images), prioritised(images)
    halves.stage(8)
    places = [tensor.data_ptr() for tensor in halves.staged()]
    for _ in range(2):
        expected = whole.sample(8)
        assert isinstance(expected, WeightedBatch) and expected.index.dtype == torch.int64
        assert_same(halves.staged()._asdict(), expected._asdict())
        errors = torch.rand(8)
        for buffer in (whole, halves):
            buffer.update_priorities(expected.index, errors)
        halves.stage(8)
    kept = [tensor.data_ptr() for tensor in halves.staged()]
    assert kept[-2:] == places[-2:]  # a captured graph reads them there


@pytest.mark.parametrize("name", HEADS)
def test_a_weighted_loss_is_the_mean_of_weighted_rows(name: str) -> None:
    head, random = HEADS[name], torch.Generator().manual_seed(0)
    outputs, next_outputs = torch.randn(2, 2, 6, head.out_dim, generator=random, dtype=torch.float64)
    reward, discount = torch.randn(2, 6, 1, generator=random, dtype=torch.float64)
    target = deepcopy(head).double().target(reward, discount, 0.9, next_outputs)
    weight = torch.tensor([0.0, 0.1, 0.5, 1.0, 1.0, 0.7], dtype=torch.float64)
    by_hand = sum(weight[b] * head.loss(outputs[:, b : b + 1], target[b : b + 1]) for b in range(6)) / 6
    torch.testing.assert_close(head.loss(outputs, target, weight), by_hand)
    torch.testing.assert_close(head.loss(outputs, target, torch.ones_like(weight)), head.loss(outputs, target))


def test_a_huber_head_is_linear_beyond_one_and_gives_back_the_largest_error() -> None:
    outputs = torch.tensor([[[0.5], [3.0]], [[-1.0], [0.25]]], dtype=torch.float64, requires_grad=True)
    target = torch.zeros(2, 1, dtype=torch.float64)
    loss = HuberHead().loss(outputs, target)
    torch.testing.assert_close(loss, torch.tensor((0.125 + 2.5 + 0.5 + 0.03125) / 2, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert gradient.flatten().tolist() == [0.25, 0.5, -0.5, 0.125]
    assert HuberHead().td_error(outputs, target).tolist() == [1.0, 3.0]
    assert HuberHead(loss_weight=2.0).loss(outputs, target).item() == 2 * loss.item()


@pytest.mark.parametrize("name", BY_HAND)
def test_priorities_are_the_rows_td_errors_before_the_step(name: str) -> None:
    agent = make_agent(*BY_HAND[name], *SMALL, "agent.critic_lr=0.1")
    batch = make_batch(32)._replace(discount=torch.zeros(32, 1))  # so that the target is the reward
    q = agent.critic(batch.obs, batch.action)[:, :, 0].detach()
    buffer = Remembers(weighted(batch))
    agent.update(buffer, Silent(), 0)
    torch.testing.assert_close(buffer.priorities, (batch.reward[:, 0] - q).abs().mean(0), rtol=1e-4, atol=1e-5)
    assert buffer.index.tolist() == [1000 + 3 * i for i in range(32)]
    assert not buffer.priorities.requires_grad
    before = buffer.priorities
    agent.update(buffer, Silent(), 1)
    assert not torch.equal(buffer.priorities, before)


@pytest.mark.parametrize("overrides", [("agent=drq", *TINY), ("agent=crossq", *FROM_IMAGES)])
def test_views_of_one_image_have_one_priority(overrides: tuple[str, ...]) -> None:
    agent = make_agent(*overrides, *SMALL, "agent.augmentation.num_views=3")
    buffer = Remembers(weighted(make_batch(32, images=True)))
    agent.update(buffer, Silent(), 0)
    assert buffer.priorities.shape == (32,) == buffer.index.shape
    assert bool(torch.isfinite(buffer.priorities).all()) and len(buffer.priorities.unique()) > 16


def trained(name: str, execution: str, updates: int = 16) -> list[Any]:
    """Trains; returns what was logged and learned, the priorities, and a batch drawn afterwards."""
    agent = make_agent(*AGENTS[name])
    sees_images = agent.observations.spec.image is not None
    buffer = prioritised(sees_images, discrete=agent.discrete_actions)
    if execution == "captured":
        agent.execution = graphs = Captured(StandInGraphs(agent))
    else:
        set_execution(agent, execution, CPU)
    if sees_images:
        buffer.add = lambda *transition: None  # images that share no frame would push rows out
    logged = train(agent, buffer, updates)
    if execution == "captured":
        assert graphs._backend.replays >= 3
    return [logged, learned(agent), buffer.state_dict()["sampling"]["priorities"], buffer.sample(8)._asdict()]


@pytest.mark.parametrize("name", DIFFERENT)
def test_recorded_and_captured_updates_are_the_eager_ones(name: str) -> None:
    eager = trained(name, "eager")
    assert len(eager[2].unique()) > 20  # the priorities were given back
    assert_same(trained(name, "recorded"), eager)
    assert_same(trained(name, "captured"), eager)


def test_who_does_not_take_part_is_refused_before_it_trains() -> None:
    buffer, fork = prioritised(), ForkAgent(OBS_DIM, ACTION_DIM, (-1.0, 1.0), CPU)
    require_support(make_agent(*SMALL), buffer)
    require_support(fork, make_buffer("host"))
    for agent in (make_agent(*AGENTS["sac_v"]), fork):
        name = type(agent).__name__
        with pytest.raises(UserError, match=rf"draws by priority, and {name} returns no .* replay_buffer=uniform "):
            require_support(agent, buffer)
