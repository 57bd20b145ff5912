"""Environments with rsl_rl's interface and known numbers: reset by us, or resetting themselves."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from counting import LENGTHS, CountingVec, terminates

from envs.rsl_rl import RslRlEnv
from envs.simulator import Simulator

CPU = torch.device("cpu")
NUM_ENVS = 8


class VecEnv:
    """Counting worlds with rsl_rl's interface.

    Args:
        by_hand: whether its own resets can be switched off, as mjlab's can.
        final: whether it returns episodes' last observations when it resets itself.
    """

    num_envs, num_actions, device, max_episode_length = NUM_ENVS, 2, "cpu", 5

    def __init__(self, by_hand: bool, final: bool):
        self._by_hand, self._final = by_hand, final
        self.counting = CountingVec(NUM_ENVS, "Disabled" if by_hand else "SameStep", tensors=True, final=final)
        self.cfg = SimpleNamespace(auto_reset=True) if by_hand else SimpleNamespace()
        self.episode_length_buf = torch.zeros(NUM_ENVS, dtype=torch.long)
        self.unwrapped, self.closed = self, False
        self.reset()

    def seed(self, seed: int) -> None:
        self.seeded = seed

    def reset(self, env_ids: Any = None) -> tuple[Any, dict[str, Any]]:
        mask = None if env_ids is None else {"reset_mask": np.isin(np.arange(NUM_ENVS), env_ids.numpy())}
        return self._groups(self.counting.reset(options=mask)[0]), {}

    def get_observations(self) -> Any:
        return self._groups(self.counting._obs())

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
        assert not (self._by_hand and self.cfg.auto_reset) and actions.shape == (NUM_ENVS, 2)
        obs, rewards, terminated, truncated, info = self.counting.step(actions[:, :, None])
        extras = {"time_outs": truncated, "log": {}}
        extras |= {"final_obs": self._groups(info["final_obs"])} if "final_obs" in info else {}
        return self._groups(obs), rewards, (terminated | truncated).long(), extras

    def close(self) -> None:
        self.closed = True

    @staticmethod
    def _groups(obs: Any) -> dict[str, torch.Tensor]:
        names = torch.as_tensor(obs["names"]).reshape(NUM_ENVS, 2).float().clone()
        steps = torch.as_tensor(obs["steps"]).reshape(NUM_ENVS, 1).float().clone()
        return {"policy": torch.cat([names, steps], dim=1), "critic": -steps}


@pytest.mark.parametrize(("by_hand", "final"), [(True, False), (False, True), (False, False)])
def test_ends_and_last_observations(by_hand: bool, final: bool) -> None:
    env = VecEnv(by_hand, final)
    simulator = Simulator(RslRlEnv(env, action_bound=3.0), "counting", 1)
    obs, _ = simulator.reset(seed=7, options={"reset_mask": np.ones(NUM_ENVS, bool)})
    assert env.seeded == 7
    ended = 0
    for _ in range(20):
        next_obs, _, terminated, truncated, _ = simulator.step(np.full((NUM_ENVS, 2), 1 / 3, np.float32))
        np.testing.assert_allclose(env.counting.actions, 1.0, rtol=1e-6)
        for world, (before, after) in enumerate(zip(obs, next_obs, strict=True)):
            number, episode, taken = before
            last = taken + 1 == LENGTHS[world % 4]
            assert (number, terminated[world] or truncated[world]) == (world, last)
            assert terminated[world] == (last and terminates(world, int(episode)))
            known = by_hand or final or not last
            assert after.tolist() == [world, episode, taken + 1 if known else taken]
            ended += last
        obs, _ = simulator.reset(options={"reset_mask": terminated | truncated})
    assert ended > 20
    simulator.close()
    assert env.closed


def test_groups_are_chosen_by_name() -> None:
    env = VecEnv(False, True)
    assert Simulator(RslRlEnv(env), "counting", 1).single_observation_space.shape == (3,)
    both = Simulator(RslRlEnv(env, groups=["policy", "critic"]), "counting", 1)
    obs, _ = both.reset(options={"reset_mask": np.ones(NUM_ENVS, bool)})
    assert obs.shape == (NUM_ENVS, 4)


def test_first_episodes_begin_at_random_steps() -> None:
    env = VecEnv(True, False)
    Simulator(RslRlEnv(env), "counting", 1, first_steps=1000).reset(options={"reset_mask": np.ones(NUM_ENVS, bool)})
    assert 0 <= env.episode_length_buf.min() < env.episode_length_buf.max() < env.max_episode_length
