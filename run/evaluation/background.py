"""Evaluations in another process, while training goes on.

The process has no state worth saving: it is killed when the run ends, and exits by itself if the run's process dies.
"""

import os
import pickle
import time
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate

from agent.execution.tracing import TracedByShape
from agent.off_policy import OffPolicyAgent
from agent.policy import Policy
from run.environments import make_env_factory
from run.evaluation.evaluator import Evaluation
from run.execution import has_free_core, set_precision
from settings.operating_system import begin_helper
from settings.schema import Settings
from utils import one_line, set_seed_everywhere

STEPS_WORTH_A_PROCESS = 10_000  # a shorter run gains nothing from evaluating in the background
TIMEOUT_S = 3600  # after which an evaluation counts as hung; training then makes it itself
NICE = 10  # added to the process's nice value: training goes first if both want the same core
EvalResult = tuple[Evaluation, float]  # and the seconds that it took


def make_evaluator(cfg: Settings, work_dir: Path, films: bool) -> Any:
    """Builds the evaluator that `cfg.evaluator` describes."""
    return instantiate(cfg.evaluator, _convert_="all")(
        make_env=make_env_factory(cfg, "evaluation"),
        video_path=(lambda step: work_dir / "video" / f"{step}.mp4") if films else None,
    )


def make_background_evaluator(
    cfg: Settings, work_dir: Path, films: bool, agent: Any, device: torch.device
) -> "BackgroundEvaluator | None":
    """Returns an evaluator in another process; None if that is not wanted, or it would need more than a policy."""
    pays = has_free_core(device) and cfg.num_train_steps >= STEPS_WORTH_A_PROCESS
    is_wanted = pays if cfg.eval_in_background == "auto" else cfg.eval_in_background
    if not is_wanted or getattr(type(agent), "act", None) is not OffPolicyAgent.act:
        return None
    try:
        return BackgroundEvaluator(cfg, work_dir, films, agent.policy)
    except Exception as error:  # pickling a user's network can raise anything
        print(f"Training waits for evaluations: {one_line(error)}")
        return None


class BackgroundEvaluator:
    """Runs evaluations of a policy's weights in another process, one at a time. The first one starts the process."""

    def __init__(self, cfg: Settings, work_dir: Path, films: bool, policy: Policy):
        # Pickled here, which copies tensors; the executor's own pickling would move them into shared memory.
        self._parts = pickle.dumps((cfg, work_dir, films, policy.networks, policy.action_range, policy.device))
        # A forked process would share the threads' locks and the GPU; a fork server would be waited for.
        self._executor = ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin_process)
        self._result: Future[EvalResult] | None = None

    @property
    def has_answered(self) -> bool:  # whether `wait` would return, or raise, at once
        return self._result is not None and self._result.done()

    def begin(self, step: int, weights: dict[str, Any]) -> None:
        """Starts the evaluation of a policy with these weights at this step; `wait` returns the result."""
        try:
            self._result = self._executor.submit(_evaluate, self._parts, step, pickle.dumps(weights))
        except BrokenProcessPool as error:  # it died after the previous evaluation
            self._result = Future()
            self._result.set_exception(error)

    def wait(self) -> EvalResult:
        """Waits for the result of the evaluation; raises TimeoutError after TIMEOUT_S, BrokenProcessPool if the
        process died, or what the evaluation raised."""
        assert self._result is not None
        return self._result.result(TIMEOUT_S)

    def close(self) -> None:
        """Kills the process."""
        for process in list((self._executor._processes or {}).values()):
            process.kill()
        self._executor.shutdown(cancel_futures=True)


def _begin_process() -> None:
    begin_helper()  # ignores the signals that the run handles, and exits with the run's process
    os.nice(NICE)
    os.environ.setdefault("LP_NUM_THREADS", "0")  # Mesa's: rendering without a GPU leaves the other cores alone
    torch.set_num_threads(1)


@cache
def _make_parts(pickled: bytes) -> tuple[Any, Policy]:
    cfg, work_dir, films, networks, action_range, device = pickle.loads(pickled)
    set_precision(cfg.precision, device)
    set_seed_everywhere(cfg.seed)
    policy = Policy(**networks, action_range=action_range, device=device, generator=torch.Generator(device))
    if device.type == "cpu" and cfg.execution != "eager":
        policy.choose = TracedByShape(policy.actions)
    return make_evaluator(cfg, work_dir, films), policy


def _evaluate(pickled_parts: bytes, step: int, weights: bytes) -> EvalResult:
    """Runs in the process."""
    started_s = time.perf_counter()
    evaluator, policy = _make_parts(pickled_parts)
    for name, state in pickle.loads(weights).items():
        policy.networks[name].load_state_dict(state)
    return evaluator.evaluate(policy, step), time.perf_counter() - started_s
