"""The environments of a run, from its settings; what their rendering needs of the machine."""

from functools import partial
from typing import Any

from run import machine
from settings.check import Settings
from utils import UserError


def import_envs(cfg: Settings, films: bool) -> tuple[Any, bool]:
    """Chooses an OpenGL and then imports the environments.

    Args:
        films: whether videos are wanted.

    Returns:
        The module `envs.make`, and whether videos can be made; a line says so if they cannot.

    Raises:
        UserError: for a run from pixels where nothing renders.
    """
    env_module, has_opengl = machine.import_envs(machine.wants_opengl(cfg.env, films or cfg.from_pixels))
    if cfg.from_pixels and not has_opengl and env_module.needs_opengl(cfg.env):
        raise UserError(
            f"from_pixels=true: env={cfg.env} is rendered with OpenGL, and none was found here; install libosmesa6 "
            "(apt), or a GPU driver with EGL"
        )
    return env_module, films and machine.can_film(has_opengl or not env_module.needs_opengl(cfg.env))


def maker(cfg: Settings, env_module: Any) -> Any:
    """What builds one environment; its argument is whether it will be filmed."""
    camera = None if cfg.camera_id == "auto" else cfg.camera_id
    pixels = env_module.Pixels(cfg.from_pixels, cfg.image_size, cfg.frame_stack, camera)
    return partial(env_module.make_env, cfg.env, cfg.seed, cfg.action_repeat, pixels=pixels)


def in_processes(cfg: Settings) -> bool:
    """Whether environments get processes of their own: several that are rendered always do, as a renderer is slow."""
    return cfg.async_envs or (cfg.from_pixels and cfg.num_envs > 1)
