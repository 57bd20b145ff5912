"""Every served task against dm_control: the same seeds and actions give the same numbers, to the last bit."""

from typing import Any

import numpy as np
import pytest

from envs.make import make_env
from envs.names import SUITE_TASKS
from physics.tasks import find
from physics.worlds import Worlds

SERVED = [name for name, (domain, task) in SUITE_TASKS.items() if find(domain, task)]
COUNT = 2


def worlds_of(name: str, count: int = COUNT, action_repeat: int = 1, render: bool = False) -> Worlds:
    make_task = find(*SUITE_TASKS[name])
    assert make_task is not None
    return Worlds(make_env(name, 1, action_repeat, render), make_task, name, count)


def differences(name: str, num_steps: int, action_repeat: int = 1) -> set[str]:
    """What differs between worlds and environments of their own over two episodes, the first one cut short."""
    envs = [make_env(name, 1, action_repeat) for _ in range(COUNT)]
    worlds = worlds_of(name, action_repeat=action_repeat)
    found, random = set(), np.random.default_rng(0)
    for length in (3, num_steps):
        for index, env in enumerate(envs):
            seed = int(random.integers(1000))
            if not np.array_equal(env.reset(seed=seed)[0], worlds.reset(index, seed)):
                found.add("starts")
        truncated, number = False, 0
        while not truncated and number < length:
            actions = random.uniform(-1, 1, (COUNT, *worlds.spaces[1].shape)).astype(np.float32)
            if number // 100 % 2:  # those of agents are often at the bounds
                actions = np.sign(actions)
            together, number = worlds.step(actions), number + 1
            for index, env in enumerate(envs):
                obs, reward, terminated, truncated, info = env.step(actions[index])
                state = env.unwrapped._env.physics.get_state()  # type: ignore[attr-defined]
                ends = (together.terminated[index], together.truncated[index], together.repeats[index])
                same = {
                    "states": np.array_equal(worlds.physics_state(index), state),
                    "observations": np.array_equal(together.obs[index], obs),
                    "rewards": together.rewards[index] == reward,
                    "ends": ends == (terminated, truncated, info["repeats"]),
                }
                found |= {what for what, is_same in same.items() if not is_same}
    for each in [*envs, worlds]:
        each.close()
    return found


@pytest.mark.parametrize("name", SERVED)
def test_worlds_have_the_numbers_of_dm_control(name: str) -> None:
    assert differences(name, 8) == set()


@pytest.mark.thorough
@pytest.mark.parametrize("name", SERVED)
def test_worlds_have_the_numbers_of_dm_control_for_whole_episodes(name: str) -> None:
    assert differences(name, 1001) == set()


def test_an_action_that_is_held_ends_with_the_episode() -> None:
    assert differences("cartpole_swingup", 1001, action_repeat=64) == set()


@pytest.mark.parametrize("name", SERVED)
def test_observations_and_rewards_of_any_state_are_those_of_dm_control(name: str) -> None:
    """Near the pose of the model's file, where rewards are high, and further and further away from it."""
    worlds, random = worlds_of(name), np.random.default_rng(0)
    host: Any = worlds.unwrapped._env  # type: ignore[attr-defined]
    physics, rewards = host.physics, set()
    for spread in np.geomspace(0.001, 3, 20):
        expected = []
        for index in range(COUNT):
            worlds.reset(index, int(random.integers(1000)))
            physics.data.qpos[:] = physics.model.qpos0 + spread * random.standard_normal(physics.model.nq)
            physics.data.qvel[:] = 5 * spread * random.standard_normal(physics.model.nv)
            physics.data.ctrl[:] = random.uniform(-1, 1, physics.model.nu)
            physics.forward()
            obs = np.concatenate([np.ravel(part) for part in host.task.get_observation(physics).values()])
            expected.append((obs, host.task.get_reward(physics)))
            worlds._copy(worlds._model, worlds._data, worlds._models[index], worlds._worlds[index])
        worlds._state.choose(range(COUNT))
        got_obs = np.concatenate(worlds._task.observation(worlds._state), axis=1)
        np.testing.assert_array_equal(got_obs, [obs for obs, _ in expected])
        assert worlds._task.reward(worlds._state).tolist() == [reward for _, reward in expected]
        rewards |= {reward for _, reward in expected}
    worlds.close()
    assert len(rewards) > 1  # otherwise the states would show nothing


def test_worlds_may_step_apart_and_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("physics.worlds.CHEAP_S", 0.0)
    monkeypatch.setattr("physics.worlds.WORTH_S", 1e-9)
    monkeypatch.setattr("physics.worlds.MEASURED", 1)
    together, apart = worlds_of("hopper_hop", 3), worlds_of("hopper_hop", 3)
    threaded = Worlds(make_env("hopper_hop", 1), type(together._task), "hopper_hop", 3, threads=2)
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 3, *together.spaces[1].shape))
    for worlds in (together, apart, threaded):
        for index in range(3):
            worlds.reset(index, index)
    for action in actions:
        obs, rewards, *_ = together.step(action)
        for which in ([1], [0, 2]):
            got = apart.step(action[which], which)
            np.testing.assert_array_equal(got.obs, obs[which])
            np.testing.assert_array_equal(got.rewards, rewards[which])
        np.testing.assert_array_equal(threaded.step(action).obs, obs)
    assert threaded._worthwhile(3) == 2
    for worlds in (together, apart, threaded):
        worlds.close()


def test_frames_are_those_of_dm_control(opengl: None) -> None:
    env, worlds = make_env("walker_walk", 1, render=True), worlds_of("walker_walk", 2, render=True)
    for episode in range(2):
        env.reset(seed=episode)
        worlds.reset(0, episode)
        frames = [(env.render(), worlds.render())]
        worlds.reset(1, 77)
        for _ in range(2):
            action = np.full((2, 6), 0.5, np.float32)
            env.step(action[0])
            worlds.step(action)
            frames.append((env.render(), worlds.render()))
        for frame, got in frames:
            np.testing.assert_array_equal(got, frame)
        assert not np.array_equal(frames[0][0], frames[-1][0])
    env.close()
    worlds.close()
