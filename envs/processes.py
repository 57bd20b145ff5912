"""Several environments stepped together, in this process or in processes of their own."""

import multiprocessing
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from envs.seeded import SeededEpisodes
from settings.operating_system import ignore_stop_signals, process_context
from utils import EnvError, RunError, one_line

CAUSED = "\nThe above exception was the direct cause of the following exception:\n"  # Python's, in a traceback


def make_train_envs(
    make_one: Callable[[], gym.Env],
    run_seed: int,
    num_envs: int = 1,
    asynchronous: bool = False,
    timeout_s: float = 600.0,
) -> SyncVectorEnv | AsyncVectorEnv:
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
    make = _make_apart if asynchronous else _make_seeded
    makers: list[Callable[[], gym.Env]] = [partial(make, make_one, run_seed, index) for index in range(num_envs)]
    if asynchronous:
        # Not a fork: this process has threads, and may have a GPU.
        return EnvProcesses(makers, timeout_s)
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)


class EnvProcesses(AsyncVectorEnv):
    """Environments in processes of their own; one that dies or hangs ends the run with a line instead of a wait.

    Raises:
        EnvError: from any call in which the environment's code raises, with the traceback of its process.
        RunError: from any call that it does not answer.
    """

    def __init__(self, makers: list[Callable[[], gym.Env]], timeout_s: float):
        self._timeout_s = timeout_s
        context = process_context(["__main__", "envs.make"]).get_start_method()
        self.processes: list[Any] = []
        build = partial(super().__init__, makers, context=context, autoreset_mode=AutoresetMode.DISABLED)
        try:
            self._watched(build)
        except BaseException:
            if self.processes:
                self._kill()
            raise

    def _check_spaces(self) -> None:
        self.call("render_mode")  # what comes next would wait for ever for one that hangs while it is built
        super()._check_spaces()

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

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """As gymnasium's, but the traceback goes with the error instead of to the terminal."""
        failed = sum(not success for success in successes)
        if not failed:
            return
        errors = sorted((self.error_queue.get() for _ in range(failed)), key=lambda error: error[0])
        for index, *_ in errors:
            self.parent_pipes[index].close()
            self.parent_pipes[index] = None  # type: ignore[call-overload]  # as gymnasium marks one that is gone
        self._state = AsyncState.DEFAULT
        _, _, error, trace = errors[0]
        if isinstance(error, EnvError):
            raise EnvError(str(error), trace.rpartition(CAUSED)[0])
        raise error

    def _kill(self) -> None:
        """They share no state that has to be put away, and a hung one listens to nothing else."""
        for process in self.processes:
            process.kill()
        self._state = AsyncState.DEFAULT
        if not self.closed:
            self.close(terminate=True)


class FailedEnv(gym.Env):
    """Stands in for an environment that could not be built in its process, until it is asked for something.

    Args:
        error: what its constructor raised.
    """

    observation_space = action_space = gym.spaces.Discrete(1)

    def __init__(self, error: Exception):
        self._error = error

    def get_wrapper_attr(self, name: str) -> Any:
        raise EnvError(one_line(self._error)) from self._error.__cause__ or self._error


def _make_seeded(make_one: Callable[[], gym.Env], run_seed: int, index: int) -> gym.Env:
    return SeededEpisodes(make_one(), run_seed, index)


def _make_apart(make_one: Callable[[], gym.Env], run_seed: int, index: int) -> gym.Env:
    """One environment, here to be asked for its spaces, or in its own process."""
    if multiprocessing.parent_process() is None:
        return _make_seeded(make_one, run_seed, index)
    ignore_stop_signals()
    try:
        return _make_seeded(make_one, run_seed, index)
    except Exception as error:  # raised from here, it would only end the process
        return FailedEnv(error)
