"""Evaluations in a process of their own, which training does not wait for.

The process builds an evaluator of its own from the run's settings, gets the policy's networks once and their weights
for each evaluation, and answers with what the evaluator found. It has no state that anybody needs: it is killed when
the run ends, and ends by itself when the run's process does.
"""

import contextlib
import multiprocessing
import os
import pickle
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate

from agent.policy import Policy
from run import machine
from run.environments import env_maker
from run.evaluation.evaluator import Evaluation
from settings.operating_system import ignore_stop_signals, lower_priority, process_context
from settings.schema import Settings
from utils import one_line, set_seed_everywhere

NICE = 10  # training goes first where both want a core
BEAT_S = 1.0  # between two signs of life
START_S = 10.0  # for a process that is being started to be there; one that hangs then ends with the run's


class LostError(Exception):
    """An evaluation that the process did not make; the message says why."""


@dataclass
class EvalResult:
    """An evaluation, and the seconds that it took."""

    evaluation: Evaluation
    seconds: float


@dataclass
class EvalTask:
    """What the process is told of the run once.

    Attributes:
        cfg, work_dir: of the run.
        films: whether to film.
        device: of the policy, as torch names it.
        networks: of the policy, by their names there.
    """

    cfg: Settings
    work_dir: Path
    films: bool
    device: str
    networks: dict[str, Any]
    action_range: tuple[float, float]


def make_evaluator(cfg: Settings, work_dir: Path, films: bool) -> Any:
    """The evaluator that `cfg.evaluator` describes."""
    return instantiate(cfg.evaluator, _convert_="all")(
        make_env=env_maker(cfg, "evaluation", films),
        video_path=(lambda step: work_dir / "video" / f"{step}.mp4") if films else None,
    )


class BackgroundEvaluator:
    """The process, seen from the run. The first evaluation starts it.

    Args:
        spec: what it is told of the run.

    Raises:
        Exception: whatever pickle says of networks that it cannot send.
    """

    def __init__(self, spec: EvalTask):
        # As bytes, in which tensors are copied: a connection's own pickling would move them into shared memory.
        self._spec = pickle.dumps(spec)
        self._timeout_s = spec.cfg.env_timeout_s  # without a sign of life it then counts as hung
        self._process: Any = None
        self._connection: Connection
        self._changing = threading.Lock()  # held while the process is started or ended
        self._is_closed = False
        self.has_begun = False
        self._answered = threading.Event()
        self._answer: EvalResult | LostError
        self._beat_s = 0.0

    @property
    def has_answered(self) -> bool:
        return self._answered.is_set()

    def begin(self, step: int, weights: dict[str, Any]) -> None:
        """Has a policy with these weights evaluated, as after this step; `wait` returns what comes of it."""
        self._answered.clear()
        self._beat_s = time.monotonic()
        self.has_begun = True
        # A thread: the process takes two seconds to start, and a pipe no more than what has been read of it.
        threading.Thread(target=self._ask, args=(pickle.dumps((step, weights)),), daemon=True).start()

    def _start(self) -> None:
        context: Any = process_context(["__main__", "envs.make", "run.evaluation.background"])
        self._connection, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self._spec), daemon=True)
        process.start()
        self._process = process
        theirs.close()  # so that its end is seen here

    def _ask(self, request: bytes) -> None:
        try:
            self._answer = self._told(request) if self._is_there() else LostError("it is closed")
        except (EOFError, OSError):
            self._answer = LostError("its process died")
        except Exception as error:  # whatever keeps a process from being started
            self._answer = LostError(f"{type(error).__name__}: {one_line(error)}")
        self._answered.set()

    def _is_there(self) -> bool:
        """Has it started, unless the run has ended meanwhile."""
        with self._changing:
            if self._process is None and not self._is_closed:
                self._start()
            if self._is_closed:
                self._end()
            return not self._is_closed

    def _told(self, request: bytes) -> EvalResult | LostError:
        self._connection.send_bytes(request)
        while (answer := self._connection.recv()) is None:
            self._beat_s = time.monotonic()
        return answer

    def wait(self) -> EvalResult:
        """What came of the evaluation, once it is made.

        Raises:
            LostError: if it was not.
        """
        while not self._answered.wait(BEAT_S):
            if time.monotonic() - self._beat_s > self._timeout_s:
                raise LostError(f"its process has not been heard of for env_timeout_s={self._timeout_s:g}")
        if isinstance(self._answer, LostError):
            raise self._answer
        return self._answer

    def close(self) -> None:
        """Ends the process for good, whatever it does."""
        self._is_closed = True
        if self._changing.acquire(timeout=START_S):
            self._end()
            self._changing.release()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


class _Alive:
    """A policy that gives signs of life while it acts."""

    training = False

    def __init__(self, policy: Policy, connection: Connection):
        self._policy = policy
        self._connection = connection
        self._next_s = 0.0

    def train(self, training: bool = True) -> None:
        """Always in evaluation mode."""

    def sampling(self, seed: int) -> AbstractContextManager[None]:
        return self._policy.sampling(seed)

    def act(self, obs: np.ndarray, sample: bool = False) -> np.ndarray:
        if time.monotonic() >= self._next_s:
            self._connection.send(None)
            self._next_s = time.monotonic() + BEAT_S
        return self._policy.act(obs, sample)


def serve(connection: Connection, pickled: bytes) -> None:
    """The process: evaluates what it is sent, until nobody sends any more."""
    ignore_stop_signals()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    lower_priority(NICE)
    os.environ.setdefault("LP_NUM_THREADS", "0")  # Mesa's: frames drawn without a GPU leave the other cores alone
    torch.set_num_threads(1)  # as an evaluation has in any case
    spec: EvalTask = pickle.loads(pickled)
    cfg, device = spec.cfg, torch.device(spec.device)
    machine.set_precision(cfg.precision, device)
    set_seed_everywhere(cfg.seed)
    policy = Policy(
        **spec.networks, action_range=spec.action_range, device=device, generator=torch.Generator(device).manual_seed(0)
    )
    if device.type == "cpu" and cfg.execution != "eager":
        policy.trace()
    evaluator = None
    with contextlib.suppress(EOFError, OSError):  # the run has ended
        while True:
            step, weights = pickle.loads(connection.recv_bytes())
            began_s = time.perf_counter()
            try:
                for name, network in spec.networks.items():
                    network.load_state_dict(weights[name])
                evaluator = evaluator or make_evaluator(cfg, spec.work_dir, spec.films)
                evaluation = evaluator.evaluate(_Alive(policy, connection), step)
                made: EvalResult | LostError = EvalResult(evaluation, time.perf_counter() - began_s)
            except Exception as error:  # whatever it is: the run evaluates once more itself, and tells of it
                made = LostError(f"{type(error).__name__}: {one_line(error)}")
            connection.send(made)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
