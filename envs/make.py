"""A task's name in, an environment out. Imports dm_control: a run imports it through run.machine.import_envs."""

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, load_env_creator, parse_env_id

import dmc2gym
from envs import arguments, opengl
from envs.flat import EPISODE_LENGTH, Wrap, flat, where, wrapped
from envs.names import SUITE_TASKS, unknown
from envs.pixels import NO_PIXELS, Filmed, Pixels, render_quickly, require_camera, stacked
from envs.processes import EnvProcesses, make_train_envs
from envs.seeded import SeededEpisodes
from settings.signatures import Parameter
from settings.types import PositiveInt
from utils import UserError, one_line

try:
    opengl.load_triton_before_mesa()
    from envs import suite_task
except ModuleNotFoundError as error:  # Gymnasium's tasks do without
    if error.name != "dm_control":
        raise
    suite_task = None  # type: ignore[assignment]

__all__ = [
    "SUITE_TASKS",
    "EnvProcesses",
    "Pixels",
    "SeededEpisodes",
    "make_env",
    "make_train_envs",
    "needs_opengl",
]

VIDEO_SIZE = 256  # pixels
INSTALL_SUITE = "pip install --no-deps dm_control==1.0.50"  # its other requirements are this project's own
NOTHING: Mapping[str, Any] = {}
OF_GYMNASIUM = {"max_episode_steps": Parameter(PositiveInt, inspect.Parameter.empty, False)}  # its `make` alone


def make_env(
    name: str,
    seed: int,
    action_repeat: int = 1,
    render: bool = False,
    kwargs: Mapping[str, Any] = NOTHING,
    wrappers: Sequence[Wrap] = (),
    pixels: Pixels = NO_PIXELS,
) -> gym.Env:
    """Builds an environment with a flat float32 observation, or images, and float32 actions in [-1, 1].

    Args:
        name: a suite task such as `cheetah_run`, or a Gymnasium id such as `Pendulum-v1`.
        seed: for what is drawn at construction; episodes take theirs in `reset`.
        action_repeat: environment steps that one action is held for; `info["repeats"]` says how many were taken.
        render: whether `render()` will be called, for (H, W, 3) uint8 frames.
        kwargs: the environment's own arguments: for Gymnasium's `make`, or for the suite's task and environment.
        wrappers: put around it as it is made, the first one innermost; each is called with `env=`.
        pixels: how observations become images, (C, H, W) uint8; those of an environment that gives images are stacked
            in any case.

    Raises:
        UserError: for an unknown name or argument, a missing optional package, or spaces that SAC cannot use.
    """
    if name not in SUITE_TASKS:
        env = wrapped(_make_gymnasium(name, render or pixels.rendered, kwargs), name, wrappers)
        return flat(env, name, action_repeat, pixels=pixels)
    size, camera = (pixels.size, pixels.camera_of(SUITE_TASKS[name][0])) if pixels.rendered else (VIDEO_SIZE, 0)
    if suite_task is None:
        raise UserError(f"env={name}: the Control Suite is not installed; {INSTALL_SUITE}")
    limit = None if "time_limit" in kwargs else EPISODE_LENGTH
    ours: dict[str, Any] = {
        "visualize_reward": render and not pixels.rendered,
        "height": size,
        "width": size,
        "camera_id": camera,
    }
    if wrappers:
        env = suite_task.build(dmc2gym.load, name, kwargs, ours | {"seed": seed})
    else:
        ours |= {"seed": seed, "frame_skip": action_repeat, "episode_length": limit, "from_pixels": pixels.rendered}
        env = suite_task.build(dmc2gym.make, name, kwargs, ours)
    if pixels.rendered:
        require_camera(env, camera, name)
    if pixels.rendered or render:
        render_quickly(env, max(size, VIDEO_SIZE), once=not pixels.rendered)
    if wrappers:
        env = flat(wrapped(env, name, wrappers), name, action_repeat, limit, pixels)
    elif pixels.rendered:
        env = stacked(env, pixels.stack)
    return Filmed(env, VIDEO_SIZE, camera) if pixels.rendered else env


def _make_gymnasium(name: str, render: bool, kwargs: Mapping[str, Any]) -> gym.Env:
    # Box2D's bindings say something about types of their own that is of no use to anyone.
    warnings.filterwarnings("ignore", message="builtin type .* has no __module__")
    there: dict[str, Parameter] = {}
    try:
        if kwargs:
            make = _creator(_spec(name))
            there = arguments.known(make) | OF_GYMNASIUM
            kwargs = arguments.fitted(name, there, kwargs, arguments.takes_more(make))
        if render:  # pygame is to draw into memory, and to look for neither a window nor a loudspeaker
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
            os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        return _make(name, dict(kwargs), render)
    except gym.error.DependencyNotInstalled as error:
        hint = "pip install -e '.[box2d]'" if "ox2" in str(error) else one_line(error)
        raise UserError(f"env={name}: a package is missing; {hint}") from error
    except (gym.error.Error, ImportError) as error:
        raise UserError(unknown(name)) from error
    except UserError:
        raise
    except Exception as error:
        hint = "; env_kwargs.<name>=<value> gives arguments" if "required" in str(error) else ""
        hint = f"; {arguments.names(there)}" if there and isinstance(error, TypeError) else hint
        raise UserError(f"env={name}: it cannot be built ({where(error)}){hint}") from error


def _make(name: str, kwargs: dict[str, Any], render: bool) -> gym.Env:
    # Not every environment knows the argument, so it is passed only where it is needed.
    rendering: dict[str, Any] = {arguments.RENDERING: "rgb_array"} if render else {}
    try:
        return gym.make(name, disable_env_checker=True, **kwargs, **rendering)
    except TypeError:
        if render:  # if that was it, it will not render, which is said when it is asked to
            return gym.make(name, disable_env_checker=True, **kwargs)
        raise


def reward_threshold(name: str) -> float | None:
    """The mean return at which Gymnasium counts a task as solved; None for the suite's, and where there is none."""
    if name in SUITE_TASKS:
        return None
    threshold = _spec(name).reward_threshold
    return None if threshold is None else float(threshold)


def gymnasium_ids() -> list[str]:
    """What is registered with Gymnasium, the newest version of each alone."""
    newest = {spec.name: spec.id for spec in sorted(gym.registry.values(), key=lambda spec: spec.version or 0)}
    return sorted(name for name in newest.values() if "/" not in name)


def needs_opengl(name: str) -> bool:
    """Whether rendering this environment takes OpenGL; Gymnasium's 2D tasks draw without.

    Raises:
        UserError: for an unknown name.
    """
    if name in SUITE_TASKS:
        return True
    spec = _spec(name)
    homes = [str(spec.entry_point)]
    with suppress(Exception):  # what keeps it from being built is told of where it is
        homes += [owner.__module__ for owner in _creator(spec).__mro__]  # type: ignore[attr-defined]  # if it is a class
    return any(word in home for word in ("mujoco", "dm_control") for home in homes)


def _spec(name: str) -> EnvSpec:
    """What Gymnasium knows of an id; one of a package (my_package:MyEnv-v0) is registered when that is imported.

    Raises:
        UserError: for an unknown one, and a package that cannot be imported.
    """
    module, _, env_id = name.rpartition(":")
    try:
        if module:
            import_module(module)
        if env_id not in gym.registry:  # without a version it is the newest
            namespace, short, version = parse_env_id(env_id)
            newest = find_highest_version(namespace, short) if version is None else version
            env_id = get_env_id(namespace, short, newest)
        return gym.spec(env_id)
    except (gym.error.Error, ImportError, ValueError) as error:
        raise UserError(unknown(name)) from error
    except Exception as error:
        raise UserError(f"env={name}: {module} cannot be imported ({where(error)})") from error


def _creator(spec: EnvSpec) -> Callable[..., Any]:
    """The class or the function that builds an environment."""
    if isinstance(spec.entry_point, str):
        return load_env_creator(spec.entry_point)
    if spec.entry_point is None:
        raise gym.error.Error(f"{spec.id} has no entry point")
    return spec.entry_point
