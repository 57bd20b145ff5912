"""Every served task against dm_control: the same seeds and actions give the same numbers, to the last bit."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
import torch
from dm_control.rl.control import PhysicsError
from meta_device import META, on_device

from envs.make import make_env
from physics.indices import Indices
from physics.tasks import find
from physics.worlds import State, Steps, Worlds
from settings.env_ids import SUITE_TASKS

SERVED = [name for name in SUITE_TASKS if find(name)]
FIRST = {SUITE_TASKS[name][0]: name for name in reversed(SERVED)}.values()  # of each domain
COUNT = 2


def worlds_of(name: str, count: int = COUNT, action_repeat: int = 1, render: bool = False) -> Worlds:
    return Worlds(make_env(name, 1, action_repeat, render), find(name), name, count)


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[] if name in FIRST else pytest.mark.thorough) for name in SERVED]
)
def worlds(request: pytest.FixtureRequest) -> Iterator[Worlds]:
    made = worlds_of(request.param)
    yield made
    made.close()


def state(worlds: Worlds, index: int) -> np.ndarray:
    """Returns what dm_control's `get_state` does: a world's positions, velocities and activations."""
    data = worlds._worlds[index]
    return np.concatenate([data.qpos, data.qvel, data.act])


def differences(worlds: Worlds, env: gym.Env, num_steps: int) -> set[str]:
    """Returns what differs between the worlds and `env`, which repeats two episodes of each; the first is cut short."""
    found, random = set(), np.random.default_rng(0)
    for length in (3, num_steps):
        seeds = random.integers(1000, size=COUNT).tolist()
        starts = [(worlds.reset(index, seed), state(worlds, index)) for index, seed in enumerate(seeds)]
        taken: list[tuple[np.ndarray, Steps, list[np.ndarray]]] = []
        while len(taken) < length and not (taken and taken[-1][1].truncated.all()):
            actions = random.uniform(-1, 1, (COUNT, *worlds.spaces[1].shape)).astype(np.float32)
            if len(taken) // 100 % 2:  # an agent's actions are often at the bounds
                actions = np.sign(actions)
            taken.append((actions, worlds.step(actions), [state(worlds, index) for index in range(COUNT)]))
        for index, seed in enumerate(seeds):
            obs, _ = env.reset(seed=seed)
            physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
            same = {"starts": all(map(np.array_equal, starts[index], (obs, physics.get_state())))}
            for actions, together, states in taken:
                obs, reward, terminated, truncated, info = env.step(actions[index])
                ends = (together.terminated[index], together.truncated[index], together.repeats[index])
                same |= {
                    "states": np.array_equal(states[index], physics.get_state()),
                    "observations": np.array_equal(together.obs[index], obs),
                    "rewards": together.rewards[index] == reward,
                    "ends": ends == (terminated, truncated, info["repeats"]),
                }
                found |= {what for what, is_same in same.items() if not is_same}
    return found


def test_worlds_have_the_numbers_of_dm_control(worlds: Worlds) -> None:
    assert differences(worlds, worlds._env, 8) == set()


@pytest.mark.thorough
def test_worlds_have_the_numbers_of_dm_control_for_whole_episodes(worlds: Worlds) -> None:
    env = make_env(worlds._name, 1)
    assert differences(worlds, env, 1001) == set()
    env.close()


def test_an_action_that_is_held_ends_with_its_worlds_episode() -> None:
    """Ten steps, in decisions of four; the second world begins anew after its first decision, so they end apart."""
    name, random, steps = "cartpole_swingup", np.random.default_rng(0), {"time_limit": 0.1}
    *envs, of_worlds = (make_env(name, 1, 4, kwargs=steps) for _ in range(3))
    worlds = Worlds(of_worlds, find(name), name, COUNT)
    for index, env in enumerate(envs):
        np.testing.assert_array_equal(worlds.reset(index, index), env.reset(seed=index)[0])
    for repeats in ([4, 4], [4, 4], [2, 4]):
        actions = random.uniform(-1, 1, (COUNT, 1)).astype(np.float32)
        together, apart = worlds.step(actions), [env.step(action) for env, action in zip(envs, actions, strict=True)]
        np.testing.assert_array_equal(together.obs, [obs for obs, *_ in apart])
        assert together.rewards.tolist() == [reward for _, reward, *_ in apart]
        assert together.truncated.tolist() == [truncated for *_, truncated, _ in apart]
        assert together.repeats.tolist() == [info["repeats"] for *_, info in apart] == repeats
        if worlds._steps == [4, 4]:
            np.testing.assert_array_equal(worlds.reset(1, 7), envs[1].reset(seed=7)[0])
    for each in (*envs, worlds):
        each.close()


@pytest.mark.parametrize("name", ["manipulator_bring_peg", "stacker_stack_2"])
def test_an_arm_may_not_see_what_it_moves(name: str) -> None:
    env, blind = make_env(name, 1), {"fully_observable": False}
    worlds = Worlds(make_env(name, 1, kwargs=blind), find(name), name, COUNT)
    assert differences(worlds, worlds._env, 3) == set()
    assert worlds.spaces[0].shape < env.observation_space.shape
    for each in (env, worlds):
        each.close()


class OfTorch:
    """The state of the worlds as tensors."""

    def __init__(self, state: State, device: torch.device | None = None):
        self._state, self._device = state, device

    def __getattr__(self, name: str) -> torch.Tensor:
        value = self.__dict__[name] = torch.tensor(getattr(self._state, name), device=self._device)
        return value


def test_observations_and_rewards_of_any_state_are_those_of_dm_control(worlds: Worlds) -> None:
    """States spread ever further around the pose in the model's file, where rewards are high; then a bisection between
    two states approaches the point where the reward changes.

    Episodes are tried until a world has had two different rewards: with a single one, the states would show nothing.
    """
    host: Any = worlds.unwrapped._env  # type: ignore[attr-defined]
    physics, task, random = host.physics, worlds._task, np.random.default_rng(0)
    nq, nv, nu = physics.model.nq, physics.model.nv, physics.model.nu

    def check(states: dict[int, np.ndarray]) -> list[float]:
        """Puts worlds into states and compares them with dm_control; returns its rewards."""
        expected = []
        for index, state in states.items():
            worlds._give(index)
            *parts, nearness = np.split(state, np.cumsum([nq, nv, nu]))
            physics.data.qpos[:], physics.data.qvel[:], physics.data.ctrl[:] = parts
            with suppress(PhysicsError):  # raised if there are too many contacts
                physics.forward()
            for positions in (physics.data.xpos, physics.data.geom_xpos, physics.data.site_xpos):
                positions *= nearness  # draws everything to the origin, and so hands to targets
            obs = np.concatenate([np.ravel(part) for part in host.task.get_observation(physics).values()])
            expected.append((obs, host.task.get_reward(physics)))
            mujoco.mj_copyData(worlds._worlds[index], worlds._model, worlds._data)
        worlds._state.choose(list(states))
        np.testing.assert_array_equal(
            np.concatenate(task.observation(worlds._state), axis=1), [obs for obs, _ in expected]
        )
        rewards = [reward for _, reward in expected]
        assert task.reward(worlds._state).tolist() == rewards
        return rewards

    for episode in range(1000):
        seen: list[dict[float, np.ndarray]] = [{} for _ in range(COUNT)]  # for each world, one state per reward
        for index in range(COUNT):
            worlds.reset(index, episode + 1000 * index)
        for spread in np.geomspace(0.001, 3, 20):
            states = {}
            for index in range(COUNT):
                qpos = physics.model.qpos0 + spread * random.standard_normal(nq)
                qvel, ctrl = 5 * spread * random.standard_normal(nv), random.uniform(-1, 1, nu)
                states[index] = np.concatenate([qpos, qvel, ctrl, [random.uniform() ** 2]])
            rewards = check(states)
            for index, reward in enumerate(rewards):
                seen[index].setdefault(reward, states[index])
        tensors, state = OfTorch(worlds._state), worlds._state
        torch.testing.assert_close(
            torch.cat(task.observation(tensors), 1), torch.tensor(np.concatenate(task.observation(state), axis=1))
        )
        assert task.reward(tensors).tolist() == pytest.approx(rewards)
        index = max(range(COUNT), key=lambda index: len(seen[index]))
        if len(seen[index]) > 1:
            (low, here), (_, there) = list(seen[index].items())[:2]
            for _ in range(12):
                middle = (here + there) / 2
                here, there = (middle, there) if check({index: middle}) == [low] else (here, middle)
            return
    pytest.fail("no world had two rewards")


def test_on_a_gpu_nothing_is_waited_for(worlds: Worlds) -> None:
    tensors, indices = OfTorch(worlds._state, META), Indices(META)
    task: Any = worlds._task
    with indices:  # sends the indices to the device
        expected = [part.shape for part in (*task.observation(tensors), task.reward(tensors))]
    with on_device(), indices:
        parts = *task.observation(tensors), task.reward(tensors)
    assert [part.shape for part in parts] == expected
    assert {part.device for part in parts} == {META}


def test_worlds_may_step_apart_and_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("physics.worlds.MIN_THREADED_STEP_S", 0.0)
    monkeypatch.setattr("physics.worlds.MIN_THREAD_WORK_S", 1e-9)
    monkeypatch.setattr("physics.worlds.TIMED", 1)
    monkeypatch.setattr("physics.worlds.TIMED_EVERY", 2)
    name = "point_mass_hard"  # each reset changes how the model's motors drive its joints
    together, apart = worlds_of(name, 3), worlds_of(name, 3)
    threaded = Worlds(make_env(name, 1), find(name), name, 3, threads=2)
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 3, *together.spaces[1].shape))
    for worlds in (together, apart, threaded):
        for index in range(3):
            worlds.reset(index, index)
    assert threaded._pool is not None
    submit = threaded._pool.submit
    submitted: list[int] = []  # the numbers of the steps that a second thread took part in
    monkeypatch.setattr(threaded._pool, "submit", lambda *work: submitted.append(threaded._steps[0]) or submit(*work))
    for action in actions:
        obs, rewards, *_ = together.step(action)
        for which in ([1], [0, 2]):
            got = apart.step(action[which], which)
            np.testing.assert_array_equal(got.obs, obs[which])
            np.testing.assert_array_equal(got.rewards, rewards[which])
        np.testing.assert_array_equal(threaded.step(action).obs, obs)
    assert submitted == [1, 2, 4]  # one thread is timed in the others
    for worlds in (together, apart, threaded):
        worlds.close()


@pytest.mark.parametrize("name", ["swimmer_swimmer6", "walker_stand"])  # resets move the target; rewards colour it
def test_frames_are_those_of_dm_control(opengl: None, name: str) -> None:
    env, worlds = make_env(name, 1, render=True), worlds_of(name, 2, render=True)
    for episode in range(2):
        env.reset(seed=episode)
        worlds.reset(0, episode)
        frames = [(env.render(), worlds.render())]
        worlds.reset(1, 77)
        action = np.full((2, *worlds.spaces[1].shape), 0.5, np.float32)
        env.step(action[0])
        worlds.step(action)
        frames.append((env.render(), worlds.render()))
        for frame, got in frames:
            np.testing.assert_array_equal(got, frame)
        assert not np.array_equal(frames[0][0], frames[-1][0])
    env.close()
    worlds.close()
