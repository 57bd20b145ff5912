"""Makes the environments for training and evaluation from the settings."""

import os
from functools import partial
from typing import Any, get_args

from hydra.utils import instantiate

from envs.names import SUITE_TASKS
from run import machine
from run.env_spec import EnvSpec
from run.evaluation.evaluator import MakeEnv
from settings.schema import ONLY_IN, Place, Settings
from utils import EnvError, UserError

PLACES: tuple[Place, ...] = get_args(Place)


def import_envs(cfg: Settings, films: bool) -> tuple[Any, bool]:
    """Chooses an OpenGL and then imports the environments.

    Args:
        films: whether videos are wanted.

    Returns:
        The module `envs.make`, and whether the run's environment can be rendered.

    Raises:
        UserError: for a run from pixels where nothing renders.
    """
    env_module, has_opengl = machine.import_envs(machine.wants_opengl(cfg.env, films or cfg.from_pixels))
    renders = has_opengl or not env_module.needs_opengl(cfg.env)
    if cfg.from_pixels and not renders:
        raise UserError(
            f"from_pixels=true: env={cfg.env} is rendered with OpenGL, and none was found here; install a GPU "
            "driver with EGL, or Mesa (Debian, Ubuntu: apt install libegl1 libgl1)"
        )
    return env_module, renders


def require_alike(cfg: Settings) -> None:
    """Builds an environment for each purpose, where wrappers tell training and evaluation apart or it has to render.

    Raises:
        UserError: for observations or actions of different shapes, or an environment that does not render.
    """
    differ = any(ONLY_IN in node for node in cfg.env_wrappers)
    specs: list[EnvSpec] = []
    for place in PLACES if differ else PLACES[: int(cfg.from_pixels)]:
        env = env_maker(cfg, place)(False)
        specs.append(EnvSpec.of(env))
        try:
            if cfg.from_pixels:
                env.reset(seed=cfg.seed)
        except EnvError as error:
            raise UserError(f"from_pixels=true: {error}") from error
        finally:
            env.close()
    if specs and specs[0] != specs[-1]:
        shapes = "; in ".join(
            f"{place} {spec.obs_dim} observations and {spec.action_dim} actions"
            for place, spec in zip(PLACES, specs, strict=True)
        )
        raise UserError(f"env_wrappers: with {ONLY_IN}, the environments' shapes differ: in {shapes}")


def in_processes(cfg: Settings) -> bool:
    """Whether environments get processes of their own: several that are rendered always do, as a renderer is slow."""
    return cfg.async_envs or (cfg.from_pixels and cfg.num_envs > 1)


def may_step_elsewhere(cfg: Settings) -> bool:
    """Whether another thread may step them than the one that made them: EGL's context belongs to the thread that first
    drew with it, while dm_control has OSMesa draw in a thread of its own.
    """
    in_software = cfg.env in SUITE_TASKS and os.environ.get("MUJOCO_GL") == "osmesa"
    return not cfg.from_pixels or in_processes(cfg) or in_software


def env_maker(cfg: Settings, place: Place, films: bool = False, human: bool = False) -> MakeEnv:
    """What makes an environment, given whether it will be rendered.

    Args:
        place: what it is for; some wrappers belong to one of them alone.
        films: whether anything will be rendered in this process (see run.machine.import_envs).
        human: whether the environment, which is no task of the suite, draws itself in a window.
    """
    env_module, _ = machine.import_envs(machine.wants_opengl(cfg.env, films or cfg.from_pixels))
    camera = None if cfg.camera_id == "auto" else cfg.camera_id
    stack = None if cfg.frame_stack == "auto" else cfg.frame_stack
    pixels = env_module.Pixels(cfg.from_pixels, cfg.image_size, stack, camera, cfg.obs_groups)
    nodes = [node for node in cfg.env_wrappers if node.get(ONLY_IN, place) == place]
    wrappers = [_wrapper(node) for node in nodes]
    if cfg.action_bounds is not None:
        wrappers.append(partial(env_module.BoundedActions, bounds=cfg.action_bounds))
    return partial(
        env_module.make_env,
        cfg.env,
        cfg.seed,
        cfg.action_repeat,
        kwargs=dict(cfg.env_kwargs),
        wrappers=wrappers,
        pixels=pixels,
        info_keys=dict(cfg.info_keys),
        human=human,
    )


def is_as_registered(cfg: Settings) -> bool:
    """Whether an evaluation's rewards are those of the task that goes by that name."""
    return not any(node.get(ONLY_IN) != "training" for node in cfg.env_wrappers)


def _wrapper(node: dict[str, Any]) -> Any:
    """A factory that wants an environment."""
    return instantiate({key: value for key, value in node.items() if key != ONLY_IN}, _convert_="all")
