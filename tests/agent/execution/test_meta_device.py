"""Tests the GPU's path without a GPU: updates, acting and the work around them, on torch's meta device.

Only this needs the host: it stores rows, draws how long noise is held, sends observations and receives actions
(`Policy.act`), and fetches metrics at a dump and histograms when they are due.
"""

from pathlib import Path
from typing import Any

import composed
import numpy as np
import pytest
import torch
from agents import ACTION_DIM, FROM_IMAGES, IMAGE, OBS_DIM, SMALL, STACK, TINY, make_agent
from meta_device import META, Operations, on_device, stand_in
from parts import AGENTS, overrides, table
from stand_in_graphs import buffer_for, delayed, fill, make_buffer

from agent.execution import Result
from agent.execution.captured import Captured, Update
from logger import Logger
from replay import frames
from replay.n_step import NStep
from run.agents import EnvSpec, build_agent
from settings.obs_spec import ObsSpec

VECTORS = {name: overrides(name) for name in AGENTS if not name.startswith("drq")}
PIXELS = {
    f"{name} from pixels": (*overrides(name), *FROM_IMAGES, "agent/observation_normaliser=none")
    for name in AGENTS
    if name != "self_predictive"
}
FOLLOWING = ("normalised observations", "normalised rewards", "held noise", "weight decay")
DROPOUT = ("dropout in the critics", "dropout in the actor")
WARM = tuple(f"agent.{network}.network.norm.renorm_after=3" for network in ("actor", "critic"))
CHOICES = {  # several parts at once; `make thorough` tests each part with each agent
    "quantiles": (*overrides("sac", *DROPOUT, "quantile head", *FOLLOWING), "agent.temperature.form=direct"),
    "bins": (*overrides("sac", "LayerNorm", "categorical head"), "agent/temperature=fixed"),
    "means": (*overrides("sac", "RMSNorm", "targets of the mean"), "agent/temperature=exponential"),
    "renormalisation": (*overrides("crossq"), *WARM, "agent/temperature=learned_log"),
    "likelihood ratio": (*overrides("sac_v"), "agent.policy_gradient=likelihood_ratio"),
}
SLOW = VECTORS | PIXELS
QUICK = CHOICES | {name: SLOW.pop(name) for name in ("sac", "td3", "flash_sac", "sac_v", "drq from pixels")}
WITH_PART = {part: name for (name, part), together in table().items() if together}  # one agent for each part
SLOW |= {f"{name} with {part}": overrides(name, part) for part, name in WITH_PART.items()}


@pytest.fixture(autouse=True)
def meta_device(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)


class Watched:
    """Replaces agent.execution.captured.CudaGraphs: runs under `on_device` what a graph would hold."""

    def __init__(self, agent: Any):
        self.agent = agent
        self.runs: dict[Any, list[Operations]] = {}  # by the pattern of what is due

    def warm_up(self, update: Update) -> Result:
        due_now = tuple(self.agent.due_now.items())
        with on_device() as operations:
            result = update()
        self.runs.setdefault(due_now, []).append(operations)
        return result

    def every_run(self) -> list[Operations]:
        return [run for runs in self.runs.values() for run in runs]


def make(*overrides: str) -> Any:
    agent = make_agent(*SMALL, *overrides, device="meta")
    assert {parameter.device for module in agent.modules.values() for parameter in module.parameters()} == {META}
    return agent


def train(agent: Any, logger: Logger, updates: int, buffer: Any = None) -> Watched:
    """Makes updates, with new rows and observations between them, and checks which generators they draw from."""
    watched = Watched(agent)
    agent.execution = Captured(watched)
    buffer = buffer or buffer_for(agent, "device")
    ends = np.array([False, True])
    for step in range(1, updates + 1):
        agent.update(buffer, logger, step)
        fill(buffer, 3, seed=step)
        obs = np.full((2, OBS_DIM), step, np.float32)
        with on_device(host_too=True):
            agent.observe(obs, obs[:, :ACTION_DIM], obs[:, 0], obs + 1, ends, ends)
    registered = {generator.initial_seed() for generator in (agent.policy.generator, *buffer.generators)}
    assert all(run.seeds <= registered for run in watched.every_run())
    return watched


def check_updates(logger: Logger, *overrides: str) -> None:
    agent = make(*overrides)
    runs = train(agent, logger, updates=4).runs.values()
    for first, *others in runs:  # a graph would repeat the first run
        assert all(run.calls == first.calls for run in others)
    assert max(map(len, runs)) > 1


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.thorough) for name in SLOW)])
def test_updates_wait_for_nothing_and_stay_on_the_device(name: str, tmp_path: Path) -> None:
    check_updates(Logger(tmp_path, {}), *(QUICK | SLOW)[name], *delayed(name))


def test_images_with_vectors_in_groups_wait_for_nothing(tmp_path: Path) -> None:
    spec = ObsSpec(IMAGE, vector_dim=6, frame_stack=STACK, groups=(4, 2))
    agent = build_agent(composed.settings("agent=drq", *SMALL, *TINY), EnvSpec(spec, (ACTION_DIM,)), META)
    buffer: Any = frames.STORAGES["device"](spec.shape, (ACTION_DIM,), 60, META, obs_spec=spec)
    with on_device(host_too=True):
        fill(buffer, 40, seed=0)
    for first, *others in train(agent, Logger(tmp_path, {}), 4, buffer).runs.values():
        assert all(run.calls == first.calls for run in others)


@pytest.mark.parametrize("n", [1, 3])
def test_a_simulators_rows_stay_on_the_device(n: int) -> None:
    agent, buffer, n_step = make(*overrides("sac", *FOLLOWING)), make_buffer("device", META), NStep(n, 0.9)
    obs, rewards, held = torch.zeros(4, OBS_DIM, device=META), np.ones(4), np.arange(4) < 2
    first, on_host = buffer.num_added, buffer.rows.copy()
    for step in range(6):
        with on_device(host_too=True):
            actions = agent.act(obs, sample=True)
            agent.observe(obs, actions, rewards, obs, held & (step == 4), held & (step == 5))
            done, taken = held & (step > 3), held if n == 1 else None
            buffer.add_batch(*n_step.rows(obs, actions, rewards, obs, done, done & (step == 4), taken))
            buffer.stage(5)
    assert actions.device == META and actions.shape == (4, ACTION_DIM)
    assert buffer.num_added - first + n_step.num_pending == (2 * 6 if n == 1 else 4 * 6)
    np.testing.assert_array_equal(buffer.rows, on_host)


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("storage", ["host", "device"])
def test_a_batch_reaches_the_device_without_a_wait(storage: str, images: bool) -> None:
    buffer = make_buffer(storage, META, images)
    for step in range(5):
        with on_device(host_too=True):
            fill(buffer, 25, seed=step)  # the ring wraps around
            buffer.stage(8)
        with on_device() as operations:
            batch = buffer.staged()
        assert {tensor.device for tensor in batch} == {META} and batch.obs.shape == batch.next_obs.shape
        assert batch.obs.shape == (8, *(IMAGE if images else (OBS_DIM,)))
        assert operations.seeds == {generator.initial_seed() for generator in buffer.generators}
        with on_device(host_too=True):
            assert {tensor.device for tensor in buffer.sample(8)} == {META}


@pytest.mark.parametrize("name", QUICK)
def test_acting_fetches_the_actions_and_nothing_else(name: str) -> None:
    agent = make(*QUICK[name], *delayed(name))
    images = agent.observations.spec.image is not None
    obs = np.zeros((3, *IMAGE), np.uint8) if images else np.zeros((3, OBS_DIM), np.float32)
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        agent.act(obs)

    def choose(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        with on_device():
            (actions,) = agent.policy.actions(inputs)
        assert actions.device == META
        return [torch.zeros(actions.shape)]  # on the CPU, as the host gets them

    agent.policy.choose = choose
    for sample in (False, True):
        for one in (obs, obs[0]):
            with on_device(host_too=True):
                width = 1 if agent.discrete_actions else ACTION_DIM
                assert agent.act(one, sample).shape == (*one.shape[: -obs[0].ndim], width)


def test_metrics_are_added_up_on_the_device_and_fetched_once_a_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[torch.Tensor] = []

    def tolist(tensor: torch.Tensor) -> list[float]:
        fetched.append(tensor)
        return [0.0] * len(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", tolist)
    logger = Logger(tmp_path, {})
    for step in range(5):
        losses = {f"train_{part}/loss": torch.empty((), device=META) for part in ("actor", "critic")}
        with on_device():
            logger.log_all(losses | ({"train_alpha/loss": torch.empty((), device=META)} if step % 2 else {}), step)
            logger.log("train/own", torch.empty(1, device=META), step)
        logger.log("train/episode_reward", 1.5, step)
    assert not fetched
    row = logger.dump(5)
    assert [tensor.device for tensor in fetched] == [META]
    assert len(row) == 5 and row["train/episode_reward"] == 1.5
