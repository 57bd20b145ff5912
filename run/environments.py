"""Makes the environments for training and evaluation from the settings."""

import os
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
from hydra.utils import get_object, instantiate

from envs import opengl
from envs.episodes import AUTO_INFO_KEYS
from envs.names import SUITE_TASKS
from envs.simulator import Simulator
from physics import tasks
from run import machine
from run.env_spec import EnvSpec
from run.evaluation.evaluator import Evaluator, MakeEnv
from settings.schema import ONLY_IN, Place, Settings
from utils import EnvError, UserError, one_line

BETTER_IN_AGENT = {
    "NormalizeObservation": "agent/observation_normaliser=running",
    "NormalizeReward": "agent/reward_normaliser=returns",
}


def import_envs(cfg: Settings, films: bool) -> tuple[Any, bool]:
    """Chooses an OpenGL backend and then imports the environments.

    Returns:
        The module `envs.make`, and whether the run's environment can be rendered.

    Raises:
        UserError: if the run learns from pixels and nothing can render them.
    """
    env_module, has_opengl = machine.import_envs(films or cfg.from_pixels, cfg.env)
    renders = not env_module.is_simulator(cfg.env) and (has_opengl or not env_module.needs_opengl(cfg.env))
    if cfg.from_pixels and not renders:
        raise UserError(
            f"from_pixels=true: env={cfg.env} is rendered with OpenGL, and none was found here; install a GPU "
            "driver with EGL, or Mesa (Debian, Ubuntu: apt install libegl1 libgl1)"
        )
    return env_module, renders


def why_no_videos(name: str) -> str:
    """Says why an environment cannot be rendered here."""
    is_simulator = machine.import_envs(False, name)[0].is_simulator(name)
    return f"No videos: env={name} is a simulator of many worlds." if is_simulator else opengl.NO_OPENGL


def notes(cfg: Settings) -> list[str]:
    """Returns a line for each wrapper whose statistics would be the agent's better."""
    targets = [str(node["_target_"]) for node in cfg.env_wrappers]
    return [
        f"env_wrappers: {name} has other statistics in each environment, and new ones in a resumed run; {key} keeps one"
        for package, _, name in (target.rpartition(".") for target in targets)
        if package.startswith("gymnasium.") and (key := BETTER_IN_AGENT.get(name))
    ]


def require_alike(cfg: Settings, spec: EnvSpec, own_actions: Any) -> None:
    """Makes an environment for evaluation, and checks that it renders if it has to, and fits those for training.

    Not for simulators of many worlds, for tasks of the suite as they are, and for a user's evaluator of another class,
    which may need none, unless there are wrappers or pixels.

    Args:
        spec, own_actions: of the environments for training.

    Raises:
        UserError: if it does not render, if its observations or actions differ from theirs, or for a camera of an
            environment that chooses its own.
    """
    if cfg.camera_id != "auto" and cfg.env not in SUITE_TASKS:
        raise UserError(f"camera_id={cfg.camera_id}: env={cfg.env} chooses its camera itself; leave this key out")
    differ = any(ONLY_IN in node for node in cfg.env_wrappers)
    evaluator = get_object(cfg.evaluator["_target_"])
    needs_env = isinstance(evaluator, type) and issubclass(evaluator, Evaluator) and cfg.env not in SUITE_TASKS
    make_env = env_maker(cfg, "evaluation")
    if hasattr(make_env, "worlds") or not (needs_env or cfg.env_wrappers or cfg.from_pixels):
        return
    env = make_env(False)
    try:
        other, actions = EnvSpec.of(env), env.get_wrapper_attr("own_actions")
        if cfg.from_pixels:
            env.reset(seed=cfg.seed)
    except EnvError as error:
        raise UserError(f"from_pixels=true: {error}") from error
    finally:
        env.close()
    kind = "Discrete" if actions.is_discrete else "Box"
    if other != spec or not own_actions.are_within(kind, actions.low, actions.high):
        trained, evaluated = (
            f"{env_spec.obs_dim} observations and {one_line(str(action_map.space))} as actions"
            for env_spec, action_map in ((spec, own_actions), (other, actions))
        )
        why = f"env_wrappers: with {ONLY_IN}," if differ else f"env={cfg.env}:"
        raise UserError(f"{why} its copies differ: in training {trained}; in evaluation {evaluated}")


def in_processes(cfg: Settings) -> bool:
    """Returns whether each environment gets its own process; several rendered ones always do, as rendering is slow."""
    return cfg.async_envs or (cfg.from_pixels and cfg.num_envs > 1)


def may_step_elsewhere(cfg: Settings) -> bool:
    """Returns whether a thread other than the one that made the environments may step them. EGL's context belongs to
    the thread that first drew with it, while dm_control runs OSMesa in a thread of its own.
    """
    in_software = cfg.env in SUITE_TASKS and os.environ.get("MUJOCO_GL") == "osmesa"
    return not cfg.from_pixels or in_processes(cfg) or in_software


def is_batched(cfg: Settings) -> bool:
    """Resolves `physics`: returns whether batched worlds (see physics/) are used with these settings.

    Raises:
        UserError: if `batched` or `warp` is requested and does not support the settings.
    """
    is_warp, legacy_step = cfg.physics == "warp", cfg.env_kwargs.get("legacy_step", True)
    on_device = tasks.on_device() if is_warp else [cfg.env]
    obstacles = {
        "it serves tasks of the Control Suite": cfg.env not in SUITE_TASKS,
        "it does not serve this task": cfg.env in SUITE_TASKS and not tasks.find(cfg.env),
        "from_pixels=true renders every step": cfg.from_pixels,
        "async_envs=true wants a process for each environment": cfg.async_envs,
        "env_wrappers go around one environment": bool(cfg.env_wrappers),
        "frame_stack is of one environment's observations": cfg.frame_stack not in ("auto", 1),
        "obs_groups are of one environment's observations": bool(cfg.obs_groups),
        "info_keys are of one environment's info": cfg.info_keys not in ({}, AUTO_INFO_KEYS),
        "env_kwargs.legacy_step=false is another order of MuJoCo's functions": not legacy_step,
        f"action_repeat={cfg.action_repeat} holds actions": is_warp and cfg.action_repeat != 1,
        f"of its tasks it serves {', '.join(on_device)}": cfg.env not in on_device,
        "mujoco-warp is missing; pip install -e '.[warp]'": is_warp and find_spec("mujoco_warp") is None,
    }
    reason = next((reason for reason, applies in obstacles.items() if applies), "")
    if cfg.physics in ("batched", "warp") and reason:
        raise UserError(f"physics={cfg.physics}: {reason} (env={cfg.env}); choose auto or suite")
    return cfg.physics != "suite" and not reason


@dataclass(frozen=True)
class SuiteMaker:
    """Makes environments of a Control Suite task: a single one with `make_env`, or a batch of worlds.

    Attributes:
        device: the run's, by its key's value.
    """

    make_env: MakeEnv
    name: str
    device: str

    def __call__(self, render: bool) -> gym.Env:
        return self.make_env(render)

    def make_batch(self, count: int, render: bool) -> Any:
        """Returns physics.worlds.Worlds, the first of which may be rendered."""
        env, make_task = self.make_env(render), tasks.of(self.name)
        from physics.worlds import Worlds  # imports mujoco; the OpenGL backend has been chosen by now

        return Worlds(env, make_task, self.name, count, machine.free_cores(self.device))

    def on_device(self, cfg: Settings) -> Any:
        """Returns the run's training environments as tensors on its device: physics.warp_worlds.WarpWorlds."""
        env, make_task = self.make_env(False), tasks.of(self.name)
        from physics.warp_worlds import WarpWorlds

        worlds = WarpWorlds(env, make_task, cfg.num_envs, cfg.seed, machine.resolve_device(cfg.device))
        return Simulator(worlds, self.name, cfg.seed, first_steps=cfg.stagger_steps)


def make_train_envs(cfg: Settings) -> Any:
    """Makes the training environments, stepped together: a user's simulator, batched worlds, or single environments.

    Raises:
        UserError: if they cannot be made, or keys do not apply to a simulator.
    """
    env_module, _ = machine.import_envs(cfg.from_pixels, cfg.env)
    if env_module.is_simulator(cfg.env, cfg.num_envs):
        return _simulator_maker(cfg, env_module, "training")(cfg.num_envs, first_steps=cfg.stagger_steps)
    make_env = env_maker(cfg, "training")
    if isinstance(make_env, SuiteMaker):
        if cfg.physics == "warp":
            return make_env.on_device(cfg)
        from physics.training import TrainingWorlds

        return TrainingWorlds(make_env.make_batch(cfg.num_envs, False), cfg.seed, cfg.stagger_steps)
    make_one, apart = partial(make_env, False), in_processes(cfg)
    try:
        return env_module.make_train_envs(make_one, cfg.seed, cfg.num_envs, apart, cfg.env_timeout_s, cfg.stagger_steps)
    except RuntimeError as error:
        if "spaces" not in str(error):
            raise
        raise UserError(f"env={cfg.env}: its observations and actions have to be the same in every copy") from error


def env_maker(cfg: Settings, place: Place, films: bool = False, human: bool = False) -> MakeEnv:
    """Returns a function from `render` to an environment; for a simulator, its `worlds(count)` makes many worlds.

    Args:
        place: training or evaluation; some wrappers are for one of them only.
        films: whether anything will be rendered in this process (see run.machine.import_envs).
        human: whether the environment draws itself in a window; not for tasks of the suite.
    """
    env_module, _ = machine.import_envs(films or cfg.from_pixels, cfg.env)
    camera = None if cfg.camera_id == "auto" else cfg.camera_id
    stack = None if cfg.frame_stack == "auto" else cfg.frame_stack
    pixels = env_module.Pixels(cfg.from_pixels, cfg.image_size, stack, camera, cfg.obs_groups)
    common = _common(cfg, place)
    if cfg.action_bounds is not None:
        common["wrappers"].append(partial(env_module.BoundedActions, bounds=cfg.action_bounds))
    options = {"pixels": pixels, "human": human, **common}
    make_env: Any = partial(env_module.make_env, cfg.env, cfg.seed, cfg.action_repeat, **options)
    if env_module.is_simulator(cfg.env):
        make_env.worlds = _simulator_maker(cfg, env_module, place)
    return SuiteMaker(make_env, cfg.env, cfg.device) if is_batched(cfg) else make_env


def _simulator_maker(cfg: Settings, env_module: Any, place: Place) -> Any:
    """Returns a function from the number of worlds to a simulator; raises UserError for keys of single environments."""
    for key, value, needed in (
        ("async_envs", cfg.async_envs, False),
        ("from_pixels", cfg.from_pixels, False),
        ("action_repeat", cfg.action_repeat, 1),
        ("action_bounds", cfg.action_bounds, None),
        ("frame_stack", 1 if cfg.frame_stack == "auto" else cfg.frame_stack, 1),
        ("obs_groups", cfg.obs_groups, None),
    ):
        if value != needed:
            raise UserError(f"{key}={value}: env={cfg.env} is a simulator of many worlds, which needs {key}={needed}")
    return partial(env_module.make_simulator, cfg.env, seed=cfg.seed, **_common(cfg, place))


def _common(cfg: Settings, place: Place) -> dict[str, Any]:
    """Returns the arguments that environments and simulators share, for training or evaluation."""
    nodes = [node for node in cfg.env_wrappers if node.get(ONLY_IN, place) == place]
    wrappers = [
        instantiate({key: value for key, value in node.items() if key != ONLY_IN}, _convert_="all") for node in nodes
    ]
    return {"kwargs": dict(cfg.env_kwargs), "wrappers": wrappers, "info_keys": dict(cfg.info_keys)}
