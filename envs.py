"""A name in, environments and their seeds out."""

import difflib
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from dm_control import suite
from dm_control.rl.control import PhysicsError
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

import dmc2gym
from utils import TRAIN_STREAM, RunError, UserError, episode_seed

__all__ = ["EnvProcesses", "PhysicsError", "SeededEpisodes", "make_env", "make_train_envs", "needs_opengl"]

SUITE_TASKS = {f"{domain}_{task}": (domain, task) for domain, task in suite.ALL_TASKS}
EPISODE_LENGTH = 1000  # steps, for environments that set no limit of their own
VIDEO_SIZE = 256  # pixels


def make_env(name: str, seed: int, action_repeat: int = 1, render: bool = False) -> gym.Env:
    """Builds an environment with a flat float32 observation and float32 actions in [-1, 1].

    Args:
        name: a suite task such as `cheetah_run`, or a Gymnasium id such as `Pendulum-v1`.
        seed: for what is drawn at construction; episodes take theirs in `reset`.
        action_repeat: environment steps that one action is held for; `info["repeats"]` says how many were taken.
        render: whether `render()` will be called, for (H, W, 3) uint8 frames.

    Raises:
        UserError: for an unknown name, a missing optional package, or spaces that SAC cannot use.
    """
    if name in SUITE_TASKS:
        domain, task = SUITE_TASKS[name]
        try:
            return dmc2gym.make(
                domain,
                task,
                seed=seed,
                visualize_reward=render,
                height=VIDEO_SIZE,
                width=VIDEO_SIZE,
                frame_skip=action_repeat,
                episode_length=EPISODE_LENGTH,
            )
        except RuntimeError as error:  # quadruped_escape renders its terrain while it is built
            raise UserError(
                f"env={name}: it cannot be built here ({error}); it may need OpenGL (libosmesa6)"
            ) from error
    return _make_gymnasium(name, action_repeat, render)


def _make_gymnasium(name: str, action_repeat: int, render: bool) -> gym.Env:
    # Box2D's bindings say something about types of their own that is of no use to anyone.
    warnings.filterwarnings("ignore", message="builtin type .* has no __module__")
    try:
        # Not every environment knows the argument, so it is passed only where it is needed.
        kwargs: dict[str, Any] = {"render_mode": "rgb_array"} if render else {}
        if render:  # pygame is to draw into memory, and to look for neither a window nor a loudspeaker
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
            os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        env = gym.make(name, disable_env_checker=True, **kwargs)
    except gym.error.DependencyNotInstalled as error:
        hint = "pip install -r requirements-box2d.txt" if "ox2" in str(error) else _one_line(error)
        raise UserError(f"env={name}: a package is missing; {hint}") from error
    except (gym.error.Error, ImportError) as error:
        raise UserError(_unknown(name)) from error
    try:
        if not isinstance(env.action_space, gym.spaces.Box):
            raise UserError(
                f"env={name}: its actions are {env.action_space}, and SAC here needs a Box; choose a continuous task"
            )
        space = env.observation_space
        if isinstance(space, gym.spaces.Box) and len(space.shape) >= 2 and space.dtype == np.uint8:
            raise UserError(
                f"env={name}: its observations are images {space.shape}; only flat ones can be learned from"
            )
        if not space.is_np_flattenable:
            raise UserError(f"env={name}: its observations, {space}, cannot be flattened into a vector")
        if env.spec is None or env.spec.max_episode_steps is None:
            env = gym.wrappers.TimeLimit(env, EPISODE_LENGTH)
        env = dmc2gym.ActionRepeat(env, action_repeat)
        flat = gym.spaces.flatten_space(space)
        box = gym.spaces.Box(-np.inf, np.inf, flat.shape, np.float32)
        env = gym.wrappers.TransformObservation(
            env, lambda obs: np.asarray(gym.spaces.flatten(space, obs), np.float32), box
        )
        return dmc2gym.rescale_actions(env)
    except ValueError as error:
        raise UserError(f"env={name}: {_one_line(error)}") from error


def _unknown(name: str) -> str:
    ids = [spec for spec in gym.registry if "/" not in spec]
    by_lower = {known.lower(): known for known in [*SUITE_TASKS, *ids]}
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {', '.join(near)}?" if near else "suite tasks read cheetah_run, Gymnasium ids Pendulum-v1"
    return f"env={name}: no such task in the suite or in Gymnasium; {hint}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def needs_opengl(name: str) -> bool:
    """Whether rendering this environment takes OpenGL; Gymnasium's 2D tasks draw without."""
    return name in SUITE_TASKS or any(word in str(gym.spec(name).entry_point) for word in ("mujoco", "dm_control"))


class SeededEpisodes(gym.Wrapper):
    """An environment for training, whose every episode is a function of (run seed, index, episode number).

    So its whole state is the episode's number and the actions since its start: `load_state_dict` resets with that
    episode's seed and takes the actions again, which is exact in mid-episode for any deterministic environment.

    Args:
        env: the environment.
        run_seed: the run's seed.
        index: which of the run's environments this is.
    """

    def __init__(self, env: gym.Env, run_seed: int, index: int = 0):
        super().__init__(env)
        self._run_seed = run_seed
        self._index = index
        self._episode = 0
        self._actions: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Starts the next episode of the stream; `seed` is not for the caller to choose.

        With `options={"states": ...}`, states of all the run's environments, it continues its own episode instead.
        """
        if options and "states" in options:
            return self.load_state_dict(options["states"][self._index]), {}
        self._episode += 1
        self._actions = []
        obs, _ = self._reset_to_episode()
        return obs, {}

    def _reset_to_episode(self) -> tuple[Any, dict]:
        return self.env.reset(seed=episode_seed(self._run_seed, TRAIN_STREAM, self._index, self._episode))

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict]:
        self._actions.append(np.array(action))
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {"repeats": info["repeats"]}  # what training reads, and no more

    def state_dict(self) -> dict[str, Any]:
        """The episode's number, from 1, and its actions so far, each (action_dim,)."""
        return {"episode": self._episode, "actions": [action.tolist() for action in self._actions]}

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Returns the newest observation of the restored episode."""
        self._episode = state["episode"]
        self._actions = []
        obs, _ = self._reset_to_episode()
        for action in state["actions"]:
            obs, *_ = self.step(np.asarray(action, np.float32))
        return obs


def make_train_envs(
    make_one: Callable[[], gym.Env],
    run_seed: int,
    num_envs: int = 1,
    asynchronous: bool = False,
    timeout_s: float = 600.0,
) -> VectorEnv:
    """Environments for training, stepped together; each is a SeededEpisodes.

    They do not reset themselves: `reset(options={"reset_mask": done})` starts the next episode of those that are done,
    so a transition never reaches from one episode into the next. `call("state_dict")` gives their states, and
    `reset(options={"reset_mask": all, "states": states})` restores them.

    Args:
        make_one: builds one environment.
        run_seed: the run's seed.
        num_envs: how many.
        asynchronous: each in a process of its own, for environments that take longer than a message to one.
        timeout_s: such a process that answers no sooner counts as hung.
    """
    makers: list[Callable[[], gym.Env]] = [
        partial(_make_seeded, make_one, run_seed, index) for index in range(num_envs)
    ]
    if asynchronous:
        # Not a fork: this process has threads, and may have a GPU.
        return EnvProcesses(makers, timeout_s)
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)


class EnvProcesses(AsyncVectorEnv):
    """Environments in processes of their own; one that dies or hangs ends the run with a line instead of a wait.

    Raises:
        RunError: from any call that it does not answer.
    """

    def __init__(self, makers: list[Callable[[], gym.Env]], timeout_s: float):
        self._timeout_s = timeout_s
        multiprocessing.set_forkserver_preload(["__main__", "envs"])  # imported once, and not by each process
        build = partial(super().__init__, makers, context="forkserver", autoreset_mode=AutoresetMode.DISABLED)
        self._watched(build)

    def reset(self, **kwargs: Any) -> Any:
        return self._watched(lambda: super(EnvProcesses, self).reset(**kwargs))

    def reset_wait(self, timeout: float | None = None) -> Any:
        return super().reset_wait(timeout or self._timeout_s)

    def step(self, actions: Any) -> Any:
        return self._watched(lambda: super(EnvProcesses, self).step(actions))

    def step_wait(self, timeout: float | None = None) -> Any:
        return super().step_wait(timeout or self._timeout_s)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return self._watched(lambda: super(EnvProcesses, self).call(name, *args, **kwargs))

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        return super().call_wait(timeout or self._timeout_s)

    def _watched(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (EOFError, ConnectionError):
            self._kill()
            raise RunError("an environment's process died") from None
        except multiprocessing.TimeoutError:
            self._kill()
            raise RunError(f"an environment's process has not answered for env_timeout_s={self._timeout_s:g}") from None

    def _kill(self) -> None:
        """They share no state that has to be put away, and a hung one listens to nothing else."""
        for process in self.processes:
            process.kill()
        self._state = AsyncState.DEFAULT
        self.close(terminate=True)


def _make_seeded(make_one: Callable[[], gym.Env], run_seed: int, index: int) -> gym.Env:
    if multiprocessing.parent_process() is not None:
        # A terminal's Ctrl-C, or a cluster's warning, reaches these processes too: it is for the training process,
        # which still wants their state.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    return SeededEpisodes(make_one(), run_seed, index)
