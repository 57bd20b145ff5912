"""Makes the environments for training and evaluation from the settings."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from hydra.utils import instantiate

from envs import opengl
from envs.episodes import DEFAULT_INFO_KEYS, make_vector_env
from envs.make import is_simulator, make_env, make_simulator, needs_opengl
from envs.observations import ObsOptions
from envs.simulator import Simulator
from physics import tasks
from physics.training import TrainingWorlds
from physics.worlds import Worlds
from run.execution import resolve_device, world_threads
from settings.env_ids import SUITE_TASKS
from settings.schema import ONLY_IN, Place, Settings
from utils import UserError

# Keys of single environments, with the values that also fit worlds stepped together.
SUPPORTED: Any = {"async_envs": (False,), "from_pixels": (False,), "frame_stack": ("auto", 1), "obs_groups": (None,)}
BY_SIMULATORS = {**SUPPORTED, "action_repeat": (1,)}
BY_BATCHED = {**SUPPORTED, "env_wrappers": ([],), "info_keys": ({}, DEFAULT_INFO_KEYS)}
BY_WARP = {**BY_BATCHED, "action_repeat": (1,)}


def can_render(cfg: Settings) -> bool:
    """Returns whether the run's environment can be rendered here."""
    return not is_simulator(cfg.env) and (opengl.can_render() or not needs_opengl(cfg.env))


def in_processes(cfg: Settings) -> bool:
    """Returns whether each environment gets its own process; several rendered ones always do, as rendering is slow."""
    return cfg.async_envs or (cfg.from_pixels and cfg.num_envs > 1)


def is_batched(cfg: Settings) -> bool:
    """Resolves `physics`: returns whether worlds side by side (see physics/) are used; raises UserError if `batched` or
    `warp` is requested and cannot serve."""
    task = tasks.find(cfg.env) if cfg.env in SUITE_TASKS else None
    has_task = task is not None and (task.on_device or cfg.physics != "warp")
    wrong = _list_unsupported(cfg, BY_WARP if cfg.physics == "warp" else BY_BATCHED)
    wrong += [] if cfg.env_kwargs.get("legacy_step", True) else ["env_kwargs.legacy_step"]
    if cfg.physics in ("batched", "warp") and (wrong or not has_task):
        what = f"does not support {', '.join(wrong)}" if has_task else f"has no env={cfg.env}"
        raise UserError(f"physics={cfg.physics}: it {what}; choose auto or suite")
    return has_task and not wrong and cfg.physics != "suite"


def _list_unsupported(cfg: Settings, supported: Mapping[str, tuple[Any, ...]]) -> list[str]:
    return [f"{key}={getattr(cfg, key)}" for key, values in supported.items() if getattr(cfg, key) not in values]


def make_train_envs(cfg: Settings) -> Any:
    """Makes the training environments, stepped together: a user's simulator, batched worlds, or single environments."""
    if cfg.from_pixels and not can_render(cfg):
        raise UserError(f"from_pixels=true: env={cfg.env} cannot be rendered here; {opengl.INSTALL}")
    if is_simulator(cfg.env, cfg.num_envs):
        return _make_simulator(cfg, "training", cfg.num_envs, cfg.stagger_steps)
    make = make_env_factory(cfg, "training")
    if not is_batched(cfg):
        return make_vector_env(partial(make, False), cfg.seed, cfg.num_envs, in_processes(cfg), cfg.stagger_steps)
    if cfg.physics == "warp":
        from physics.warp_worlds import WarpWorlds  # needs the extra `warp`

        device = resolve_device(cfg.device)
        worlds = WarpWorlds(make(False), tasks.find(cfg.env), cfg.num_envs, cfg.seed, device)
        return Simulator(worlds, cfg.env, cfg.seed, first_steps=cfg.stagger_steps)
    # The default for tasks of the suite: C steps them, and dm_control only begins their episodes.
    return TrainingWorlds(make.make_batch(cfg.num_envs, False), cfg.seed, cfg.stagger_steps)


def make_env_factory(cfg: Settings, place: Place, human: bool = False) -> Any:
    """Returns a function from `render` to an environment, which draws itself in a window if `human` (not a task of the
    suite). Where many are stepped together, it has a method that makes them: `worlds(count)` for a simulator,
    `make_batch(count, render)` for batched worlds, the first of which may be rendered."""
    camera = None if cfg.camera_id == "auto" else cfg.camera_id
    stack = None if cfg.frame_stack == "auto" else cfg.frame_stack
    pixels = ObsOptions(cfg.from_pixels, cfg.image_size, stack, camera, cfg.obs_groups)
    options = _make_options(cfg, place)
    make: Any = partial(make_env, cfg.env, cfg.seed, cfg.action_repeat, pixels=pixels, human=human, **options)
    if is_simulator(cfg.env):
        make.worlds = partial(_make_simulator, cfg, place)
    elif is_batched(cfg):
        task, cores = tasks.find(cfg.env), world_threads(cfg.device)
        make.make_batch = lambda count, render: Worlds(make(render), task, cfg.env, count, cores)
    return make


def _make_simulator(cfg: Settings, place: Place, count: int, first_steps: int = 0) -> Simulator:
    if wrong := _list_unsupported(cfg, BY_SIMULATORS):
        raise UserError(f"{', '.join(wrong)}: env={cfg.env}, a simulator of many worlds, does not support it")
    return make_simulator(cfg.env, count, cfg.seed, first_steps=first_steps, **_make_options(cfg, place))


def _make_options(cfg: Settings, place: Place) -> dict[str, Any]:
    """Returns the arguments that environments and simulators share, for training or evaluation."""
    chosen = [node for node in cfg.env_wrappers if node.get(ONLY_IN, place) == place]
    nodes = [{key: value for key, value in node.items() if key != ONLY_IN} for node in chosen]
    wrappers = [instantiate(node, _convert_="all") for node in nodes]
    return {"kwargs": dict(cfg.env_kwargs), "wrappers": wrappers, "info_keys": dict(cfg.info_keys)}
