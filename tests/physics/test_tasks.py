"""Every served task against dm_control: the same seeds and actions give the same numbers, to the last bit."""

import numpy as np
import pytest

from envs.make import make_env
from envs.names import SUITE_TASKS
from physics.tasks import find
from physics.worlds import Worlds

SERVED = [name for name, (domain, task) in SUITE_TASKS.items() if find(domain, task)]
COUNT = 2


def differences(name: str, num_steps: int, action_repeat: int = 1) -> set[str]:
    """What differs between worlds and environments of their own: states, observations, rewards, ends."""
    envs = [make_env(name, 1, action_repeat) for _ in range(COUNT)]
    worlds = Worlds(make_env(name, 1, action_repeat), find(*SUITE_TASKS[name]), name, COUNT)
    found, random = set(), np.random.default_rng(0)
    for _ in range(2):
        for index, env in enumerate(envs):
            seed = int(random.integers(1000))
            if not np.array_equal(env.reset(seed=seed)[0], worlds.reset(index, seed)):
                found.add("starts")
        for number in range(num_steps):
            # as uniform actions and, every other hundred, as an agent's, which are often at the bounds
            actions = random.uniform(-1, 1, (COUNT, *worlds.spaces[1].shape)).astype(np.float32)
            actions = np.sign(actions) if number // 100 % 2 else actions
            together = worlds.step(actions)
            for index, env in enumerate(envs):
                obs, reward, terminated, truncated, info = env.step(actions[index])
                state = env.unwrapped._env.physics.get_state()
                same = {
                    "states": np.array_equal(worlds.physics_state(index), state),
                    "observations": np.array_equal(together.obs[index], obs),
                    "rewards": together.rewards[index] == reward,
                    "ends": (together.terminated[index], together.truncated[index]) == (terminated, truncated),
                    "repeats": together.repeats[index] == info["repeats"],
                }
                found |= {key for key, is_same in same.items() if not is_same}
            if truncated:
                break
    for env in [*envs, worlds]:
        env.close()
    return found


@pytest.mark.parametrize("name", SERVED)
def test_worlds_have_the_numbers_of_dm_control(name):
    assert differences(name, 12) == set()


@pytest.mark.thorough
@pytest.mark.parametrize("name", SERVED)
def test_worlds_have_the_numbers_of_dm_control_for_whole_episodes(name):
    assert differences(name, 1001) == set()


def test_an_action_that_is_held_ends_with_the_episode():
    assert differences("cartpole_swingup", 1000, action_repeat=64) == set()
