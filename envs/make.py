"""Makes an environment from a task's name. Imports dm_control, so a run imports it through run.machine.import_envs."""

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from envs import arguments, opengl
from envs.adapter import BoundedActions, Wrap, adapt, wrap
from envs.episodes import AUTO_INFO_KEYS
from envs.errors import FAULTS, error_with_place, exit_reported
from envs.names import SUITE_TASKS, gymnasium_ids, unknown_task, unregistered
from envs.observations import NO_PIXELS, Pixels
from envs.processes import make_train_envs
from envs.simulator import OneWorld, Simulator
from settings.env_ids import newest_id
from settings.signatures import Parameter
from settings.types import PositiveInt
from utils import UserError, import_failure, one_line

try:
    opengl.load_triton_before_mesa()
    from envs import suite_task
except ModuleNotFoundError as error:  # Gymnasium's tasks work without dm_control
    if error.name != "dm_control":
        raise
    suite_task = None  # type: ignore[assignment]

__all__ = ["SUITE_TASKS", "BoundedActions", "Pixels", "make_env", "make_simulator", "make_train_envs", "needs_opengl"]

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
        wrappers: the user's wrappers, the first one innermost; each is called with `env=`.
        pixels: how observations become images, (C, H, W) uint8. Images of the environment itself are stacked, too.
        info_keys: the numbers of `info` to collect over each episode (see envs.episodes.EpisodeInfo).
        human: with `render`, a Gymnasium task opens a window and draws into it in each step.

    Raises:
        UserError: for an unknown name or argument, a missing optional package, or spaces that SAC cannot use.
    """
    if is_simulator(name):
        if human:
            raise UserError(f"env={name}: a simulator of many worlds cannot be shown in a window")
        return OneWorld(make_simulator(name, 1, seed, kwargs, wrappers, info_keys))
    if name not in SUITE_TASKS:
        draws_itself = human and not pixels.rendered  # rendered observations need frames as arrays
        env = wrap(_make_gymnasium(name, render or pixels.rendered, kwargs, draws_itself), name, wrappers)
        env = adapt(env, name, action_repeat, pixels=pixels, info_keys=info_keys)
        return _in_window(env, name) if human and pixels.rendered else env
    if suite_task is None:
        raise UserError(f"env={name}: the Control Suite is not installed; {INSTALL_SUITE}")
    return suite_task.make(name, seed, action_repeat, render, kwargs, wrappers, pixels, info_keys)


def is_simulator(name: str, num_envs: int = 1) -> bool:
    """Returns whether `num_envs` environments are one vector environment: the id has a `vector_entry_point`.

    If the id also has an `entry_point`, `num_envs` must be above 1 and the `entry_point` not Gymnasium's own.

    Raises:
        UserError: for an unknown name.
    """
    if name in SUITE_TASKS:
        return False
    spec = _spec(name)
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
) -> Simulator:
    """Makes a simulator of `num_envs` worlds (see envs/simulator.py); arguments and errors as for `make_env`.

    Args:
        wrappers: each wraps a vector environment and returns one.
        first_steps: see Simulator.
    """
    env = wrap(_make_gymnasium(name, False, kwargs, False, num_envs), name, wrappers, gym.vector.VectorEnv)
    needed = "num_envs", "single_observation_space", "single_action_space", "metadata"
    if missing := [attribute for attribute in needed if not hasattr(env, attribute)]:
        raise UserError(f"env={name}: it has no {', '.join(missing)}, which a simulator of many worlds needs")
    if env.num_envs != num_envs:
        env.close()
        raise UserError(f"env={name}: it has {env.num_envs} worlds; num_envs or num_eval_episodes is {num_envs}")
    return Simulator(env, name, seed, info_keys, first_steps)


def _make_gymnasium(name: str, render: bool, kwargs: Mapping[str, Any], human: bool, worlds: int = 0) -> Any:
    """Makes a registered environment or, with `worlds` above 0, a vector environment of that many worlds."""
    # Box2D's bindings warn about their own types.
    warnings.filterwarnings("ignore", message="builtin type .* has no __module__")
    warnings.filterwarnings("ignore", message=".*is out of date")  # the user chose an older version, which still works
    spec = _spec(name)
    known: dict[str, Parameter] = {}
    try:
        if kwargs:
            make = _creator(spec, bool(worlds))
            known = arguments.known(make, ("num_envs",)) | MAKE_PARAMETERS
            kwargs = arguments.fitted(name, known, kwargs, arguments.takes_more(make))
        if render:  # pygame draws into memory, without a window or a sound device
            if not human:
                os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
            os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        with exit_reported():
            if worlds:
                return gym.make_vec(name, worlds, "vector_entry_point", **kwargs)
            return _gym_make(name, dict(kwargs), render, "human" if human else "rgb_array")
    except gym.error.DependencyNotInstalled as error:
        hint = "pip install -e '.[box2d]'" if "ox2" in str(error) else one_line(error)
        raise UserError(f"env={name}: a package is missing; {hint}") from error
    except UserError:
        raise
    except (gym.error.Error, ImportError) as error:
        newest = next((known_id for known_id in gymnasium_ids() if gym.spec(known_id).name == spec.name), spec.id)
        hint = "" if newest == spec.id else f"; choose {newest}"
        raise UserError(f"env={name}: it cannot be built ({one_line(error)}){hint}") from error
    except FAULTS as error:
        hint = "; env_kwargs.<name>=<value> gives arguments" if "required" in str(error) else ""
        hint = f"; {arguments.listed(known)}" if known and isinstance(error, TypeError) else hint
        raise UserError(f"env={name}: it cannot be built ({error_with_place(error)}){hint}") from error


def _in_window(env: gym.Env, name: str) -> gym.Env:
    """Shows the frames of an environment that renders arrays in a pygame window."""
    if os.environ.get("SDL_VIDEODRIVER") == "dummy":
        del os.environ["SDL_VIDEODRIVER"]
    try:
        return gym.wrappers.HumanRendering(env)
    except ValueError as error:
        raise UserError(f"env={name}: it cannot be shown in a window ({one_line(error)})") from error


def _gym_make(name: str, kwargs: dict[str, Any], render: bool, mode: str) -> gym.Env:
    rendering: dict[str, Any] = {arguments.RENDER_MODE: mode}
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


def needs_opengl(name: str) -> bool:
    """Returns whether rendering this environment needs OpenGL; Gymnasium's 2D tasks do not.

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
            with exit_reported():
                import_module(module)
    except ImportError as error:
        raise UserError(f"env={name}: {module} {import_failure(module, error)}") from error
    except FAULTS as error:
        raise UserError(f"env={name}: {module} cannot be imported ({error_with_place(error)})") from error
    try:
        return gym.spec(newest_id(env_id))
    except (gym.error.Error, ValueError) as error:
        raise UserError(unregistered(name) if module else unknown_task(name)) from error


def _creator(spec: EnvSpec, vector: bool = False) -> Callable[..., Any]:
    """Returns the class or the function that builds an environment, or a vector environment."""
    entry_point: Any = spec.vector_entry_point if vector else spec.entry_point  # Gymnasium registers none without one
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
