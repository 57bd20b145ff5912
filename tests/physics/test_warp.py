"""`physics=warp`: its worlds compared with those of `batched`, runs in them, and where they cannot serve.

On a CPU, mujoco-warp compiles each task for a minute or two and keeps the kernels in ~/.cache/warp.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import composed
import numpy as np
import probes
import pytest
import torch
from runs import RUN, assert_same, go_on, run_until

from run import environments
from utils import UserError

COUNT, DECISIONS, CLOSE = 4, 100, 1e-3
EVERYONE = {"reset_mask": np.ones(COUNT, bool)}
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
DEVICES = [pytest.param("cpu", marks=pytest.mark.thorough), pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]
CARTPOLE = ("env=cartpole_swingup", "+env_kwargs.time_limit=0.3", f"num_envs={COUNT}")  # episodes of 30 steps


def envs_of(*overrides: str) -> Any:
    return environments.make_train_envs(composed.settings(*overrides))


class Pair:
    """The same worlds in both engines, stepped with the same random actions."""

    def __init__(self, device: str, *overrides: str):
        self.batched = envs_of(*overrides, "physics=batched")
        self.warp = envs_of(*overrides, "physics=warp", f"device={device}")
        self.random = np.random.default_rng(0)

    def reset(self, options: dict[str, Any]) -> np.ndarray:
        starts = [envs.reset(options=options)[0] for envs in (self.batched, self.warp)]
        return distance(*starts).max(1)

    def step(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns how far apart each world's obs and rewards are in the two engines, and whose episodes ended."""
        actions = self.random.uniform(-1, 1, (COUNT, *self.warp.single_action_space.shape)).astype(np.float32)
        (obs, rewards, _, ended, _), (warp_obs, warp_rewards, terminated, truncated, _) = (
            envs.step(actions) for envs in (self.batched, self.warp)
        )
        np.testing.assert_array_equal(truncated, ended)
        assert not terminated.any()
        return distance(obs, warp_obs).max(1), abs(rewards - warp_rewards), ended

    def give(self) -> None:
        """Sets the worlds of mujoco-warp to the state of the batched ones."""
        state, data = self.warp.env.state_dict(), self.batched._worlds._worlds
        for name, rows in state["rows"].items():
            rows.copy_(torch.tensor(np.stack([getattr(each, name) for each in data])))
        self.warp.env.load_state_dict(state)


def distance(expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    return abs(expected - got) / np.maximum(1, abs(expected))


@pytest.fixture
def make_pair() -> Iterator[Any]:
    made: list[Pair] = []

    def make(*overrides: str) -> Pair:
        made.append(Pair(*overrides))
        return made[-1]

    yield make
    for pair in made:
        pair.batched.close()
        pair.warp.close()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("task", ["cartpole_swingup", "cheetah_run", "reacher_easy"])
def test_its_worlds_follow_those_of_batched(make_pair: Any, task: str, device: str) -> None:
    """The comparison reaches the second episodes, one of which begins early. Reacher targets differ between worlds."""
    seconds = 1.4 if task == "reacher_easy" else 0.7
    pair = make_pair(device, f"env={task}", f"+env_kwargs.time_limit={seconds}", f"num_envs={COUNT}")
    assert pair.reset(EVERYONE).max() == 0
    num_ended = 0
    for number in range(DECISIONS):
        apart, rewards_apart, ended = pair.step()
        assert apart.max() < CLOSE and rewards_apart.max() < CLOSE
        num_ended += ended.sum()
        ended[1] |= number == 20
        assert not ended.any() or pair.reset({"reset_mask": ended})[ended].max() == 0
    assert num_ended == COUNT


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("task", ["humanoid_walk", "hopper_stand"])
def test_each_step_from_the_same_state_is_that_of_batched(make_pair: Any, task: str, device: str) -> None:
    """Contacts amplify rounding errors, so each step begins from the same state.

    Where a capsule stands steeply on the floor, mujoco-warp chooses other directions for the friction pyramid, so some
    obs may differ. The hopper feels the floor by the sensors of the previous step, which mujoco_warp.step1 would zero.
    """
    pair = make_pair(device, f"env={task}", f"num_envs={COUNT}")
    assert pair.reset(EVERYONE).max() == 0
    apart, felt = [], []
    for _ in range(DECISIONS):
        pair.give()
        obs_apart, rewards_apart, _ = pair.step()
        apart.append(obs_apart)
        felt.append(pair.batched._obs[:, -1] > 0)
        assert rewards_apart.max() < CLOSE
    are_close, touches = np.array(apart) < CLOSE, np.array(felt)
    assert are_close.mean() > 0.9 and np.median(apart) < CLOSE / 10
    assert task != "hopper_stand" or (touches.sum() > 10 and are_close[touches].mean() > 0.8)


@pytest.mark.parametrize("device", DEVICES)
def test_a_run_stores_on_the_device_what_batched_gives_for_its_actions(tmp_path: Path, device: str) -> None:
    more = "num_train_steps=400", "physics=warp", f"device={device}", "replay_storage=device"
    run = probes.train(tmp_path, *RUN, *CARTPOLE, *more)
    assert not run.replay_buffer.rows.any()  # the rows were never on the host
    assert run.agent.num_updates > 10
    batch, envs = run.replay_buffer.stored(0, 400), envs_of(*CARTPOLE)
    columns = [values.cpu().numpy() for values in (batch.obs, batch.action, batch.reward[:, 0], batch.next_obs)]
    obs, _ = envs.reset(options=EVERYONE)
    for stored_obs, actions, stored_rewards, stored_next in zip(*(c.reshape(100, 4, -1) for c in columns), strict=True):
        next_obs, rewards, _, ended, _ = envs.step(actions)
        for expected, got in ((obs, stored_obs), (next_obs, stored_next), (rewards, stored_rewards[:, 0])):
            assert distance(expected, got).max() < CLOSE
        obs = envs.reset(options={"reset_mask": ended})[0] if ended.any() else next_obs
    envs.close()


@pytest.mark.thorough
def test_a_run_that_was_killed_goes_on_in_mid_episode(tmp_path: Path) -> None:
    run = *RUN, *CARTPOLE, "physics=warp", "replay_storage=device", "stagger_steps=20"
    probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "killed", 110, *run)
    with pytest.raises(UserError, match="physics=batched would change the run, which has physics=warp"):
        go_on(tmp_path / "killed", "physics=batched")
    go_on(tmp_path / "killed")
    assert_same(tmp_path / "killed", tmp_path / "straight")
