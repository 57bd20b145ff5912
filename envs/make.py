"""Makes an environment from a task's name. Imports dm_control, so a run imports it through run.machine.import_envs."""

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, load_env_creator, parse_env_id

from envs import arguments, opengl
from envs.adapter import NO_PIXELS, Pixels, Wrap, adapt, wrap
from envs.errors import error_with_place
from envs.names import SUITE_TASKS, unknown_task
from envs.processes import make_train_envs
from settings.signatures import Parameter
from settings.types import PositiveInt
from utils import UserError, one_line

try:
    opengl.load_triton_before_mesa()
    from envs import suite_task
except ModuleNotFoundError as error:  # Gymnasium's tasks work without dm_control
    if error.name != "dm_control":
        raise
    suite_task = None  # type: ignore[assignment]

__all__ = ["SUITE_TASKS", "Pixels", "make_env", "make_train_envs", "needs_opengl"]

INSTALL_SUITE = "pip install --no-deps dm_control==1.0.50"  # requirements.txt has its other requirements
NO_KWARGS: Mapping[str, Any] = {}
MAKE_PARAMETERS = {"max_episode_steps": Parameter(PositiveInt, inspect.Parameter.empty, False)}  # of gymnasium.make


def make_env(
    name: str,
    seed: int,
    action_repeat: int = 1,
    render: bool = False,
    kwargs: Mapping[str, Any] = NO_KWARGS,
    wrappers: Sequence[Wrap] = (),
    pixels: Pixels = NO_PIXELS,
) -> gym.Env:
    """Makes an environment with flat float32 observations, or images, and float32 actions in [-1, 1].

    Args:
        name: a suite task such as `cheetah_run`, or a Gymnasium id such as `Pendulum-v1`.
        seed: for random numbers drawn at construction; episodes are seeded in `reset`.
        action_repeat: steps for which each action is held; `info["repeats"]` is how many were taken.
        render: whether `render()` will be called, for (H, W, 3) uint8 frames.
        kwargs: the environment's own arguments: for Gymnasium's `make`, or for the suite's task and environment.
        wrappers: the user's wrappers, the first one innermost; each is called with `env=`.
        pixels: how observations become images, (C, H, W) uint8. Images of the environment itself are always stacked.

    Raises:
        UserError: for an unknown name or argument, a missing optional package, or spaces that SAC cannot use.
    """
    if name not in SUITE_TASKS:
        env = wrap(_make_gymnasium(name, render or pixels.rendered, kwargs), name, wrappers)
        return adapt(env, name, action_repeat, pixels=pixels)
    if suite_task is None:
        raise UserError(f"env={name}: the Control Suite is not installed; {INSTALL_SUITE}")
    return suite_task.make(name, seed, action_repeat, render, kwargs, wrappers, pixels)


def _make_gymnasium(name: str, render: bool, kwargs: Mapping[str, Any]) -> gym.Env:
    # Box2D's bindings warn about their own types.
    warnings.filterwarnings("ignore", message="builtin type .* has no __module__")
    known: dict[str, Parameter] = {}
    try:
        if kwargs:
            make = _creator(_spec(name))
            known = arguments.known(make) | MAKE_PARAMETERS
            kwargs = arguments.fitted(name, known, kwargs, arguments.takes_more(make))
        if render:  # pygame draws into memory, without a window or a sound device
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
            os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        return _gym_make(name, dict(kwargs), render)
    except gym.error.DependencyNotInstalled as error:
        hint = "pip install -e '.[box2d]'" if "ox2" in str(error) else one_line(error)
        raise UserError(f"env={name}: a package is missing; {hint}") from error
    except (gym.error.Error, ImportError) as error:
        raise UserError(unknown_task(name)) from error
    except UserError:
        raise
    except Exception as error:
        hint = "; env_kwargs.<name>=<value> gives arguments" if "required" in str(error) else ""
        hint = f"; {arguments.listed(known)}" if known and isinstance(error, TypeError) else hint
        raise UserError(f"env={name}: it cannot be built ({error_with_place(error)}){hint}") from error


def _gym_make(name: str, kwargs: dict[str, Any], render: bool) -> gym.Env:
    rendering: dict[str, Any] = {arguments.RENDER_MODE: "rgb_array"}
    if render:
        with suppress(TypeError):  # without a parameter `render_mode`; then the first `render()` reports it
            return gym.make(name, disable_env_checker=True, **kwargs, **rendering)
    return gym.make(name, disable_env_checker=True, **kwargs)


def reward_threshold(name: str) -> float | None:
    """Returns the mean return at which Gymnasium counts a task as solved; None if it names none."""
    if name in SUITE_TASKS:
        return None
    threshold = _spec(name).reward_threshold
    return None if threshold is None else float(threshold)


def gymnasium_ids() -> list[str]:
    """Returns the ids that are registered with Gymnasium, only the newest version of each."""
    newest = {spec.name: spec.id for spec in sorted(gym.registry.values(), key=lambda spec: spec.version or 0)}
    return sorted(name for name in newest.values() if "/" not in name)


def needs_opengl(name: str) -> bool:
    """Whether rendering this environment needs OpenGL; Gymnasium's 2D tasks do not.

    Raises:
        UserError: for an unknown name.
    """
    if name in SUITE_TASKS:
        return True
    spec = _spec(name)
    modules = [str(spec.entry_point)]
    with suppress(Exception):  # building the environment reports the error
        modules += [owner.__module__ for owner in _creator(spec).__mro__]  # type: ignore[attr-defined]  # if a class
    return any(word in module for word in ("mujoco", "dm_control") for module in modules)


def _spec(name: str) -> EnvSpec:
    """Returns the registration of an id; imports the package in an id such as my_package:MyEnv-v0, which registers it.

    Raises:
        UserError: for an unknown id, and for a package that cannot be imported.
    """
    module, _, env_id = name.rpartition(":")
    try:
        if module:
            import_module(module)
        if env_id not in gym.registry:  # an id without a version means the newest
            namespace, short, version = parse_env_id(env_id)
            newest = find_highest_version(namespace, short) if version is None else version
            env_id = get_env_id(namespace, short, newest)
        return gym.spec(env_id)
    except (gym.error.Error, ImportError, ValueError) as error:
        raise UserError(unknown_task(name)) from error
    except Exception as error:
        raise UserError(f"env={name}: {module} cannot be imported ({error_with_place(error)})") from error


def _creator(spec: EnvSpec) -> Callable[..., Any]:
    """Returns the class or the function that builds an environment."""
    if isinstance(spec.entry_point, str):
        return load_env_creator(spec.entry_point)
    if spec.entry_point is None:
        raise gym.error.Error(f"{spec.id} has no entry point")
    return spec.entry_point
