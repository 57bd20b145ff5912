"""Steps several environments together, in one process or several."""

import multiprocessing
import multiprocessing.connection
import signal
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from envs.episodes import SeededEpisodes
from settings.operating_system import begin_helper, interrupt_blocked, kill_at_exit, process_context
from utils import EnvError, RunError, one_line

POLL_S = 1.0
DIRECT_CAUSE = "\nThe above exception was the direct cause of the following exception:\n"  # in a traceback


def make_train_envs(
    make_one: Callable[[], gym.Env],
    run_seed: int,
    num_envs: int = 1,
    asynchronous: bool = False,
    timeout_s: float = 600.0,
    first_steps: int = 0,
) -> SyncVectorEnv | AsyncVectorEnv:
    """Makes the training environments, each a SeededEpisodes, as one vector environment.

    They do not reset automatically: `reset(options={"reset_mask": done})` starts the next episodes of environments that
    are done, so no transition spans two episodes. `call("state_dict")` returns their states, and
    `reset(options={"reset_mask": all, "states": states})` restores them.

    Args:
        make_one: makes one environment.
        run_seed: the run's seed.
        num_envs: the number of environments.
        asynchronous: runs each in its own process; worthwhile if a step takes longer than a message between processes.
        timeout_s: seconds without an answer after which a process counts as hung.
        first_steps: see SeededEpisodes.
    """
    make = _make_in_process if asynchronous else _make_seeded
    makers: list[Callable[[], gym.Env]] = [
        partial(make, make_one, run_seed, index, first_steps) for index in range(num_envs)
    ]
    if asynchronous:
        return EnvProcesses(makers, timeout_s)
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)


class EnvProcesses(AsyncVectorEnv):
    """Environments in their own processes. If one dies or hangs, the run ends with one line instead of waiting forever.

    Raises:
        EnvError: from any method, if the environment's code raises; it carries the traceback of the process.
        RunError: from any method, if a process does not answer.
    """

    def __init__(self, makers: list[Callable[[], gym.Env]], timeout_s: float):
        self._timeout_s = timeout_s
        context = process_context(["__main__", "envs.make"]).get_start_method()
        self.processes: list[Any] = []
        build = partial(super().__init__, makers, context=context, autoreset_mode=AutoresetMode.DISABLED)
        try:
            with interrupt_blocked():
                self._or_kill(build)
            for process in self.processes:
                kill_at_exit(process)
        except BaseException:
            if self.processes:
                self._kill()
            raise

    def _check_spaces(self) -> None:
        self.call("render_mode")  # with a timeout; the call below would wait forever for a process that hangs
        super()._check_spaces()

    def reset(self, **kwargs: Any) -> Any:
        return self._or_kill(lambda: super(EnvProcesses, self).reset(**kwargs))

    def step(self, actions: Any) -> Any:
        return self._or_kill(lambda: super(EnvProcesses, self).step(actions))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return self._or_kill(lambda: super(EnvProcesses, self).call(name, *args, **kwargs))

    def _poll_pipe_envs(self, timeout: float | None = None) -> bool:
        if any(pipe is None or pipe.closed for pipe in self.parent_pipes):
            return False
        # In slices: of the time that this process was suspended too (Ctrl-Z), at most one counts.
        left_s = timeout or self._timeout_s
        while not super()._poll_pipe_envs(min(left_s, POLL_S)):
            left_s -= POLL_S
            if left_s <= 0:
                return False
        return True

    def _or_kill(self, work: Callable[[], Any]) -> Any:
        """Calls `work`; if a process does not answer, kills all of them and raises RunError."""
        try:
            return work()
        except (EOFError, ConnectionError):
            how = self._how_one_died()
            self._kill()
            raise RunError(f"an environment's process died{how}") from None
        except multiprocessing.TimeoutError:
            self._kill()
            raise RunError(f"an environment's process has not answered for env_timeout_s={self._timeout_s:g}") from None

    def _how_one_died(self) -> str:
        """Returns the exit code of a process that has just died, or the signal that killed it, for messages."""
        multiprocessing.connection.wait([process.sentinel for process in self.processes if process.pid], timeout=1)
        code = next((process.exitcode for process in self.processes if process.pid and process.exitcode), None)
        if code is None:
            return ""
        return f" ({signal.strsignal(-code)})" if code < 0 else f" (exit code {code})"

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """As in Gymnasium, but the error carries the traceback instead of logging it."""
        failed = sum(not success for success in successes)
        if not failed:
            return
        errors = sorted((self.error_queue.get() for _ in range(failed)), key=lambda error: error[0])
        for index, *_ in errors:
            self.parent_pipes[index].close()
            self.parent_pipes[index] = None  # type: ignore[call-overload]  # as Gymnasium marks a closed pipe
        self._state = AsyncState.DEFAULT
        _, _, error, trace = errors[0]
        if isinstance(error, EnvError):
            raise EnvError(str(error), trace.rpartition(DIRECT_CAUSE)[0])
        raise error

    def _kill(self) -> None:
        """Kills the processes: a hung one reacts to nothing else, and none has data to save."""
        self.processes = [process for process in self.processes if process.pid is not None]  # the started ones
        for process in self.processes:
            process.kill()
        self._state = AsyncState.DEFAULT
        if not self.closed:
            self.close(terminate=True)


class FailedEnv(gym.Env):
    """Replaces an environment that could not be built in its process, and raises the error when it is used."""

    observation_space = action_space = gym.spaces.Discrete(1)

    def __init__(self, error: Exception):
        self._error = error

    def get_wrapper_attr(self, name: str) -> Any:
        raise EnvError(one_line(self._error)) from self._error.__cause__ or self._error


def _make_seeded(make_one: Callable[[], gym.Env], *seeded: int) -> gym.Env:
    return SeededEpisodes(make_one(), *seeded)


def _make_in_process(make_one: Callable[[], gym.Env], *seeded: int) -> gym.Env:
    """Makes one environment in its own process; or in the parent process, where Gymnasium only reads its spaces."""
    if multiprocessing.parent_process() is None:
        return _make_seeded(make_one, *seeded)
    begin_helper()
    try:
        return _make_seeded(make_one, *seeded)
    except Exception as error:  # raised here, it would only end the process
        return FailedEnv(error)
