"""Image observations: rendered or an environment's own, in any layout, and stacked."""

from typing import Any

import numpy as np
import probes  # noqa: F401  registers environments with image observations
from PIL import Image

from envs.episodes import SeededEpisodes
from envs.make import ObsOptions, make_env


def pictures(name: str, stack: int, steps: int) -> list[np.ndarray]:
    env = make_env(name, 1, pixels=ObsOptions(stack=stack))
    found = [env.reset(seed=1)[0]]
    for _ in range(steps):
        obs, *_, info = env.step(np.zeros(1, np.float32))
        found.append(obs)
        assert info["repeats"] == 1
    assert all(obs in env.observation_space for obs in found)
    return found


def test_images_of_any_layout_are_channels_first() -> None:
    last, first, grey, pairs = (pictures(f"Probe{kind}-v0", 1, 3) for kind in ("Images", "Planes", "Grey", "Pairs"))
    assert [obs[3].shape for obs in (last, first, grey, pairs)] == [(3, 8, 10), (3, 8, 10), (1, 8, 10), (6, 8, 10)]
    for a, b, c, d in zip(last, first, grey, pairs, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a[1:2], c)
        np.testing.assert_array_equal(np.concatenate([a, 255 - a]), d)


def test_an_episodes_first_frame_fills_its_stack_and_no_other_episodes_does() -> None:
    env = make_env("ProbeImages-v0", 1, pixels=ObsOptions(stack=3))
    numbers = []
    for seed in (1, 2):
        obs, _ = env.reset(seed=seed)
        numbers.append(env.unwrapped.number)  # type: ignore[attr-defined]
        for step in range(4):
            assert obs.shape == (9, 8, 10)
            assert obs[::3, 0, 0].tolist() == [max(0, step - 2), max(0, step - 1), step]  # the oldest first
            assert (obs[:, 2, 0] == numbers[-1]).all()
            obs, *_ = env.step(np.zeros(1, np.float32))
    assert numbers[0] != numbers[1]


def test_a_gymnasium_task_is_seen_as_it_is_drawn_made_smaller() -> None:
    env = make_env("Pendulum-v1", 1, action_repeat=2, pixels=ObsOptions(True, 32, 2))
    obs, _ = env.reset(seed=1)
    for _ in range(2):
        obs, *_ = env.step(np.ones(1, np.float32))
    film: Any = env.render()
    assert obs.shape == (6, 32, 32) and film.shape == (500, 500, 3)
    small = np.asarray(Image.fromarray(film).resize((32, 32), Image.Resampling.BOX))
    np.testing.assert_array_equal(obs[3:], small.transpose(2, 0, 1))
    assert (obs[3:] != obs[:3]).any()
    env.close()


def test_a_suites_task_is_seen_at_one_size_and_filmed_at_another(opengl: None) -> None:
    env: Any = SeededEpisodes(make_env("cartpole_swingup", 1, 8, pixels=ObsOptions(True, 64, 3)), 1)
    obs, _ = env.reset()
    assert obs.shape == (9, 64, 64) and obs.dtype == np.uint8 and obs.std() > 5
    np.testing.assert_array_equal(obs[:3], obs[6:])
    physics = env.unwrapped._env.physics
    later, *_ = env.step(np.ones(1, np.float32))
    np.testing.assert_array_equal(later[:6], obs[3:])
    assert env.render().shape == (256, 256, 3)
    np.testing.assert_array_equal(later[6:], physics.render(64, 64, camera_id=0).transpose(2, 0, 1))
    state = env.state_dict()
    np.testing.assert_array_equal(env.load_state_dict(state), later)
    assert physics._contexts is not None
    env.close()
    assert physics._contexts is None  # closing it also frees the renderer


def test_quadruped_is_seen_by_the_camera_that_follows_it() -> None:
    assert (ObsOptions().camera_of("quadruped"), ObsOptions().camera_of("walker")) == (2, 0)
    assert ObsOptions(camera_id=1).camera_of("quadruped") == 1
