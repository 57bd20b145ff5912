"""Evaluations in the background: in another process, while training goes on.

The process builds an evaluator from the run's settings. It receives the policy's networks once and their weights for
each evaluation, and returns the result. It has no state worth saving: it is killed when the run ends, and exits by
itself if the run's process dies.
"""

import contextlib
import os
import pickle
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate

from agent.exploration import HeldNoise
from agent.policy import Policy
from run import machine
from run.environments import make_env_factory
from run.evaluation.evaluator import Evaluation
from settings.operating_system import begin_helper, interrupt_blocked, kill_at_exit, process_context
from settings.schema import Settings
from utils import one_line, set_seed_everywhere

NICE = 10  # added to the process's nice value: training goes first if both want the same core
BEAT_S = 1.0  # time between two heartbeats
START_S = 10.0  # how long `close` waits for a start of the process; a slower process exits with the run's process
EvalResult = tuple[Evaluation, float]  # and the seconds that it took


class LostError(Exception):
    """The process did not return a result; the message says why."""


@dataclass
class EvalTask:
    """Holds what the process needs to know about the run.

    Attributes:
        device: the policy's device, as torch names it.
        networks: the policy's networks, by name (see Policy.networks).
    """

    cfg: Settings
    work_dir: Path
    films: bool
    device: str
    networks: dict[str, Any]
    action_range: tuple[float, float]


def make_evaluator(cfg: Settings, work_dir: Path, films: bool) -> Any:
    """Builds the evaluator that `cfg.evaluator` describes."""
    return instantiate(cfg.evaluator, _convert_="all")(
        make_env=make_env_factory(cfg, "evaluation", films),
        video_path=(lambda step: work_dir / "video" / f"{step}.mp4") if films else None,
    )


class BackgroundEvaluator:
    """Runs evaluations in another process, one at a time. The first one starts the process.

    Raises:
        Exception: if the networks cannot be pickled.

    Attributes:
        has_begun: whether an evaluation was ever begun.
    """

    def __init__(self, task: EvalTask):
        # Pickled here, which copies tensors; a connection's own pickling would move them into shared memory.
        self._task = pickle.dumps(task)
        self._timeout_s = task.cfg.env_timeout_s  # after this time without a heartbeat, the process counts as hung
        self._process: Any = None
        self._connection: Connection
        self._lock = threading.Lock()  # held while the process is started or killed
        self._is_closed = False
        self.has_begun = False
        self._answered = threading.Event()
        self._answer: EvalResult | LostError
        self._last_beat_s = 0.0

    @property
    def has_answered(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self._answered.is_set()

    def begin(self, step: int, weights: dict[str, Any]) -> None:
        """Starts the evaluation of a policy with these weights at this step; `wait` returns the result."""
        self._answered.clear()
        self._last_beat_s = time.monotonic()
        self.has_begun = True
        # In a thread: the process takes two seconds to start, and sending blocks until the process reads.
        threading.Thread(target=self._ask, args=(pickle.dumps((step, weights)),), daemon=True).start()

    def _ask(self, request: bytes) -> None:
        """Sends a request and stores the answer; starts the process first if there is none."""
        try:
            with self._lock:
                if self._process is None and not self._is_closed:
                    self._start()
                if self._is_closed:  # `close` was called, and waits for a start no longer than START_S
                    self._kill()
                    raise LostError("it is closed")
            self._connection.send_bytes(request)
            while (answer := self._connection.recv()) is None:
                self._last_beat_s = time.monotonic()
            self._answer = answer
        except LostError as lost:
            self._answer = lost
        except (EOFError, OSError):
            self._answer = LostError("its process died")
        except Exception as error:  # starting a process can raise anything
            self._answer = LostError(f"{type(error).__name__}: {one_line(error)}")
        self._answered.set()

    def _start(self) -> None:
        context: Any = process_context(["__main__", "envs.make", "run.evaluation.background"])
        self._connection, far_end = context.Pipe()
        process = context.Process(target=serve, args=(far_end, self._task), daemon=True)
        with interrupt_blocked():
            process.start()
        kill_at_exit(process)
        self._process = process
        far_end.close()  # only the process holds it now, so if the process dies, reading here ends with EOFError

    def wait(self) -> EvalResult:
        """Waits for the result of the evaluation; raises LostError if there will be none."""
        while not self._answered.wait(BEAT_S):
            if time.monotonic() - self._last_beat_s > self._timeout_s:
                raise LostError(f"its process gave no sign of life for env_timeout_s={self._timeout_s:g}")
        if isinstance(self._answer, LostError):
            raise self._answer
        return self._answer

    def close(self) -> None:
        """Kills the process; no other is started."""
        self._is_closed = True
        if self._lock.acquire(timeout=START_S):
            self._kill()
            self._lock.release()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


class _BeatingPolicy(Policy):
    """A policy that sends a heartbeat, None, every BEAT_S seconds while it acts."""

    def __init__(self, connection: Connection, **policy: Any):
        super().__init__(**policy)
        self._connection = connection
        self._next_beat_s = 0.0

    def act(self, obs: np.ndarray, sample: bool = False, held: HeldNoise | None = None) -> np.ndarray:
        if time.monotonic() >= self._next_beat_s:
            self._connection.send(None)
            self._next_beat_s = time.monotonic() + BEAT_S
        return super().act(obs, sample, held)


def serve(connection: Connection, pickled_task: bytes) -> None:
    """Runs as the process's main function: evaluates the weights that it receives until the run ends.

    Args:
        connection: receives pickled (step, weights); sends heartbeats (None), then an EvalResult or a LostError.
    """
    begin_helper()
    os.nice(NICE)
    os.environ.setdefault("LP_NUM_THREADS", "0")  # Mesa's: rendering without a GPU leaves the other cores alone
    torch.set_num_threads(1)
    task: EvalTask = pickle.loads(pickled_task)
    cfg, device = task.cfg, torch.device(task.device)
    machine.set_precision(cfg.precision, device)
    set_seed_everywhere(cfg.seed)
    generator = torch.Generator(device).manual_seed(0)
    policy = _BeatingPolicy(
        connection, **task.networks, action_range=task.action_range, device=device, generator=generator
    )
    if device.type == "cpu" and cfg.execution != "eager":
        policy.trace()
    evaluator = None
    with contextlib.suppress(EOFError, OSError):  # raised when the run has ended
        while True:
            step, weights = pickle.loads(connection.recv_bytes())
            started_s = time.perf_counter()
            answer: EvalResult | LostError
            try:
                for name, network in task.networks.items():
                    network.load_state_dict(weights[name])
                evaluator = evaluator or make_evaluator(cfg, task.work_dir, task.films)
                answer = evaluator.evaluate(policy, step), time.perf_counter() - started_s
            except Exception as error:  # the run repeats the evaluation itself, and reports the error if it recurs
                answer = LostError(f"{type(error).__name__}: {one_line(error)}")
            connection.send(answer)
