"""Makes an environment from a task's name: vectors or images, scaled or counted actions, counted steps."""

import inspect
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

import dmc2gym
from envs.episodes import DEFAULT_INFO_KEYS, EpisodeInfo
from envs.observations import PLAIN_OBS, Keys, ObsOptions, observe
from settings.env_ids import EPISODE_LENGTH, SUITE_TASKS, find_spec
from utils import UserError, one_line

try:
    from dm_control import suite
except ModuleNotFoundError as error:  # Gymnasium's tasks work without dm_control
    if error.name != "dm_control":
        raise
    suite = None

INSTALL_SUITE = "pip install --no-deps dm_control==1.0.50"  # requirements.txt has its other requirements
NO_KWARGS: Mapping[str, Any] = {}
VIDEO_SIZE, SHADOW_SIZE = 256, 1024  # pixels
Wrap = Callable[..., Any]  # called with `env=`


def make_env(
    name: str,
    seed: int,
    action_repeat: int = 1,
    render: bool = False,
    kwargs: Mapping[str, Any] = NO_KWARGS,
    wrappers: Sequence[Wrap] = (),
    pixels: ObsOptions = PLAIN_OBS,
    info_keys: Mapping[str, str] = DEFAULT_INFO_KEYS,
    human: bool = False,
) -> gym.Env:
    """Makes an environment with observations in one array (settings.obs_spec).

    Its actions are float32 in [-1, 1] or, if they are discrete, one integer from 0.

    Args:
        name: a suite task such as `cheetah_run`, or a Gymnasium id such as `Pendulum-v1`.
        seed: seeds random numbers drawn at construction; episodes are seeded in `reset`.
        action_repeat: steps for which each action is held; `info["repeats"]` is how many were taken.
        render: whether `render()` will be called, for (H, W, 3) uint8 frames.
        kwargs: the environment's own arguments: for Gymnasium's `make`, or for the suite's task and environment.
        wrappers: the user's wrappers, the first one innermost.
        info_keys: see envs.episodes.EpisodeInfo.
        human: with `render`, a Gymnasium task opens a window and draws into it in each step.
    """
    with _explain_mistakes(name, kwargs):
        if is_simulator(name):
            from envs.simulator import OneWorld

            return OneWorld(make_simulator(name, 1, seed, kwargs, wrappers, info_keys))
        if name not in SUITE_TASKS:
            draws_itself = human and not pixels.rendered  # rendered observations need frames as arrays
            env = wrap(_make_gymnasium(name, kwargs, render or pixels.rendered, draws_itself), wrappers)
            env = adapt(env, name, action_repeat, pixels=pixels, info_keys=info_keys)
            return gym.wrappers.HumanRendering(env) if human and pixels.rendered else env
        if suite is None:
            raise UserError(f"env={name}: the Control Suite is not installed; {INSTALL_SUITE}")
        domain, task = SUITE_TASKS[name]
        size, camera = pixels.size if pixels.rendered else VIDEO_SIZE, pixels.camera_of(domain)
        of_task = inspect.signature(getattr(suite, domain).SUITE[task]).parameters
        colours_by_reward = render and not pixels.rendered
        task_kwargs = {key: value for key, value in kwargs.items() if key in of_task}
        env_kwargs = {key: value for key, value in kwargs.items() if key not in of_task}
        env = dmc2gym.load(domain, task, seed, colours_by_reward, size, size, camera, env_kwargs, task_kwargs)
    if pixels.rendered or render:
        _speed_up_rendering(env, max(size, VIDEO_SIZE), multisample=pixels.rendered)
    limit = None if "time_limit" in kwargs else EPISODE_LENGTH
    keys = () if pixels.groups is None else _list_keys(env)
    env = adapt(wrap(env, wrappers), name, action_repeat, limit, pixels, info_keys, keys)
    return VideoFrames(env, VIDEO_SIZE, camera) if pixels.rendered else env


def is_simulator(name: str, num_envs: int = 1) -> bool:
    """Returns whether `num_envs` environments are one vector environment: the id has a `vector_entry_point` and no
    `entry_point`, or one that is not Gymnasium's own, and `num_envs` is above 1."""
    if name in SUITE_TASKS:
        return False
    spec = find_spec(name)
    own = not str(spec.entry_point).startswith("gymnasium.")
    return spec.vector_entry_point is not None and (spec.entry_point is None or (own and num_envs > 1))


def make_simulator(
    name: str,
    num_envs: int,
    seed: int,
    kwargs: Mapping[str, Any] = NO_KWARGS,
    wrappers: Sequence[Wrap] = (),
    info_keys: Mapping[str, str] = DEFAULT_INFO_KEYS,
    first_steps: int = 0,
) -> Any:
    """Makes a Simulator of `num_envs` worlds; wrappers go around the vector environment."""
    from envs.simulator import Simulator  # imports torch, which processes of single environments do without

    find_spec(name)
    with _explain_mistakes(name, kwargs):
        env = wrap(gym.make_vec(name, num_envs, "vector_entry_point", **kwargs), wrappers)
    return Simulator(env, name, seed, info_keys, first_steps)


def _make_gymnasium(name: str, kwargs: Mapping[str, Any], render: bool, human: bool) -> gym.Env:
    find_spec(name)
    # Box2D's bindings warn about their own types.
    warnings.filterwarnings("ignore", message="builtin type .* has no __module__")
    warnings.filterwarnings("ignore", message=".*is out of date")  # the user chose an older version, which still works
    make = partial(gym.make, name, disable_env_checker=True, **kwargs)
    if render:  # pygame draws into memory, without a window or a sound device
        for driver in ("SDL_AUDIODRIVER",) if human else ("SDL_AUDIODRIVER", "SDL_VIDEODRIVER"):
            os.environ.setdefault(driver, "dummy")
        with suppress(TypeError):  # without a parameter `render_mode`, the first `render()` reports that it cannot
            return make(render_mode="human" if human else "rgb_array")
    return make()


@contextmanager
def _explain_mistakes(name: str, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Raises UserError for a missing package, and for a TypeError about the names of an environment's arguments."""
    try:
        yield
    except gym.error.DependencyNotInstalled as error:
        hint = "pip install -e '.[box2d]'" if "ox2" in str(error) else one_line(error)
        raise UserError(f"env={name}: a package is missing; {hint}") from error
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise UserError(f"env={name}: it cannot be made with env_kwargs={dict(kwargs)} ({one_line(error)})") from error


def needs_opengl(name: str) -> bool:
    """Returns whether rendering this environment needs OpenGL; Gymnasium's 2D tasks do not."""
    return name in SUITE_TASKS or "mujoco" in str(find_spec(name).entry_point)


def _list_keys(env: gym.Env) -> Keys:
    """Returns the keys and widths of dm_control's observation, in the order in which it is flattened."""
    task = env.unwrapped._env  # type: ignore[attr-defined]
    obs = task.task.get_observation(task.physics)
    return [(key, int(np.size(obs[key]))) for key in (obs if isinstance(obs, OrderedDict) else sorted(obs))]


class VideoFrames(gym.Wrapper):
    """Renders frames (size, size, 3) of a task from pixels, whose observations have another size."""

    def __init__(self, env: gym.Env, size: int, camera_id: int):
        super().__init__(env)
        self._kwargs = {"height": size, "width": size, "camera_id": camera_id}

    def render(self) -> Any:
        return self.env.unwrapped._env.physics.render(**self._kwargs)  # type: ignore[attr-defined]


def _speed_up_rendering(env: gym.Env, largest: int, multisample: bool) -> None:
    """Halves the time of rendering on a CPU (docs/PERFORMANCE.md) by buffers of `largest` x `largest` pixels.

    By default frames are drawn into a buffer of 640 x 480 pixels, and shadows into one of 2048 x 2048. With smaller
    buffers no byte of a 64 x 64 frame changes by more than 1. `multisample` makes a pixel the mean of four samples.
    """
    visual = env.unwrapped._env.physics.model.vis  # type: ignore[attr-defined]
    visual.quality.shadowsize = min(visual.quality.shadowsize, SHADOW_SIZE)
    visual.global_.offwidth = visual.global_.offheight = largest
    if not multisample:
        visual.quality.offsamples = 0


def adapt(
    env: gym.Env,
    name: str,
    action_repeat: int = 1,
    episode_length: int | None = EPISODE_LENGTH,
    pixels: ObsOptions = PLAIN_OBS,
    info_keys: Mapping[str, str] = DEFAULT_INFO_KEYS,
    keys: Keys = (),
) -> gym.Env:
    """Wraps an environment so that an observation is one array (settings.obs_spec), and it takes a policy's actions.

    A policy's actions are flat numbers in [-1, 1], or one integer from 0 (see dmc2gym.wrappers.ActionMap).

    Args:
        episode_length: steps per episode if the environment sets no limit; None is no limit.
        keys: keys and widths of observations that were a dictionary before.
    """
    if not isinstance(env.action_space, gym.spaces.Box | gym.spaces.Discrete):
        raise UserError(f"env={name}: its actions are {env.action_space}, and agents here need a Box or a Discrete")
    if episode_length is not None and not env.has_wrapper_attr("_max_episode_steps"):
        env = gym.wrappers.TimeLimit(env, episode_length)
    env = dmc2gym.ActionRepeat(EpisodeInfo(env, info_keys), action_repeat)
    try:
        return dmc2gym.RescaledActions(observe(env, name, pixels, keys))
    except ValueError as error:
        raise UserError(f"env={name}: {one_line(error)}") from error


def wrap(env: Any, wrappers: Sequence[Wrap]) -> Any:
    """Puts the user's wrappers around an environment, the first one innermost."""
    for wrapper in wrappers:
        env = wrapper(env=env)
    return env
