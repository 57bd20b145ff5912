"""Makes an environment from a task's name."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from envs.adapter import Wrap, adapt, wrap
from envs.episodes import AUTO_INFO_KEYS
from envs.names import SUITE_TASKS, require_known
from envs.observations import NO_PIXELS, Pixels
from settings.env_ids import newest_id
from utils import UserError, one_line

try:
    from envs import suite
except ModuleNotFoundError as error:  # Gymnasium's tasks work without dm_control
    if error.name != "dm_control":
        raise
    suite = None  # type: ignore[assignment]

INSTALL_SUITE = "pip install --no-deps dm_control==1.0.50"  # requirements.txt has its other requirements
NO_KWARGS: Mapping[str, Any] = {}


def make_env(
    name: str,
    seed: int,
    action_repeat: int = 1,
    render: bool = False,
    kwargs: Mapping[str, Any] = NO_KWARGS,
    wrappers: Sequence[Wrap] = (),
    pixels: Pixels = NO_PIXELS,
    info_keys: Mapping[str, str] = AUTO_INFO_KEYS,
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

    Raises:
        UserError: for an unknown name or argument, a missing optional package, or spaces that SAC cannot use.
    """
    with _explain_mistakes(name, kwargs):
        if name in SUITE_TASKS:
            if suite is None:
                raise UserError(f"env={name}: the Control Suite is not installed; {INSTALL_SUITE}")
            return suite.make_suite_env(name, seed, action_repeat, render, kwargs, wrappers, pixels, info_keys)
        if is_simulator(name):
            from envs.simulator import OneWorld

            return OneWorld(make_simulator(name, 1, seed, kwargs, wrappers, info_keys))
        draws_itself = human and not pixels.rendered  # rendered observations need frames as arrays
        env = wrap(_make_gymnasium(name, kwargs, render or pixels.rendered, draws_itself), wrappers)
        env = adapt(env, name, action_repeat, pixels=pixels, info_keys=info_keys)
        return gym.wrappers.HumanRendering(env) if human and pixels.rendered else env


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
    info_keys: Mapping[str, str] = AUTO_INFO_KEYS,
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
    if render:  # pygame draws into memory, without a window or a sound device
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        if not human:
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        mode = "human" if human else "rgb_array"
        with suppress(TypeError):  # without a parameter `render_mode`, the first `render()` reports that it cannot
            return gym.make(name, disable_env_checker=True, render_mode=mode, **kwargs)
    return gym.make(name, disable_env_checker=True, **kwargs)


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


def reward_threshold(name: str) -> float | None:
    """Returns the mean return at which Gymnasium counts a task as solved; None if it names none."""
    return None if name in SUITE_TASKS else find_spec(name).reward_threshold


def needs_opengl(name: str) -> bool:
    """Returns whether rendering this environment needs OpenGL; Gymnasium's 2D tasks do not."""
    return name in SUITE_TASKS or "mujoco" in str(find_spec(name).entry_point)


def find_spec(name: str) -> EnvSpec:
    """Returns the registration of an id; imports the package in an id such as my_package:MyEnv-v0, which registers it.

    Raises:
        UserError: for an unknown id, and for a package that is not found.
    """
    module, _, env_id = name.rpartition(":")
    try:
        if module:
            import_module(module)
        return gym.spec(newest_id(env_id))
    except ModuleNotFoundError as error:
        raise UserError(f"env={name}: {module} cannot be imported ({error}); is its folder in PYTHONPATH?") from error
    except (gym.error.Error, ValueError) as error:
        require_known(name)
        raise UserError(f"env={name}: {one_line(error)}") from error
