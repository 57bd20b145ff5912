"""Makes and logs the evaluations that are due. They run in this process or in the background."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from tqdm import tqdm

from run.evaluation.background import BackgroundEvaluator, LostError
from run.evaluation.evaluator import Evaluation
from run.progress import Progress
from run.stopping import Stopping
from settings.schema import BY_RETURN
from utils import require_count


class PrunedError(Exception):
    """Ends a run early, after the evaluation at a step, because other trials of its study did better."""

    def __init__(self, step: int):
        super().__init__(f"pruned at step {step}")
        self.step = step


@dataclass
class Pending:
    """An evaluation without a result yet.

    Attributes:
        step, episode: environment steps and finished training episodes when it was due.
        weights: the policy's weights at that step (see Policy.weights); None evaluates the agent's current ones.
    """

    step: int
    episode: int
    weights: dict[str, Any] | None


@dataclass(eq=False)
class Evaluations:
    """Evaluates the agent when it is due, and logs the results.

    In the background, a copy of the policy's weights is evaluated while training goes on. Training waits for the result
    when the next evaluation is due, and at the end of the run. Results and their order are as without `background`.

    Attributes:
        agent: has a `policy` if there is a `background`.
        make_evaluator: builds an evaluator, for the first evaluation in this process; None never evaluates.
        solved_from: the mean return from which the task counts as solved; None if the task defines none.
        keep_best: saves the best policy so far (see run/best.py), given policy, step and mean return.
        best_by: what ranks the evaluations: `return`, or a key of `info_keys`.
        prune: decides from the step of a new result whether the run ends with a PrunedError; None never ends it. With
            `prune`, training always waits for evaluations. Otherwise timing would decide at which step a run is pruned.
    """

    agent: Any
    make_evaluator: Callable[[], Any] | None
    logger: Any
    progress: Progress
    stopping: Stopping
    background: BackgroundEvaluator | None
    solved_from: float | None
    keep_best: Callable[[Any, int, float], None] | None
    best_by: str = BY_RETURN
    prune: Callable[[int], bool] | None = None
    _pending: Pending | None = field(default=None, init=False)  # in the background, or interrupted there

    @cached_property
    def evaluator(self) -> Any:
        """The evaluator of this process."""
        assert self.make_evaluator is not None
        return self.make_evaluator()

    @property
    def pending_step(self) -> int | None:
        """The step of the evaluation that has no result yet; None if there is none."""
        return self._pending.step if self._pending else None

    def evaluate(self, is_last: bool = False) -> None:
        """Runs or starts the evaluation that is due, once the previous one has finished.

        If a signal interrupts it, it stays due or, in the background, pending. With `is_last` or `prune`, waits for it.
        """
        if self.make_evaluator is None or not self.finish():
            return
        step, episode = self.progress.step, self.progress.episode
        waits = is_last or self.prune is not None
        # Starting a process takes longer than an evaluation saves if training would only wait for it.
        if self.background is None or (waits and not self.background.has_begun):
            self._evaluate_here(Pending(step, episode, weights=None))
            return
        weights = self.agent.policy.weights()
        self._pending = Pending(step, episode, weights)
        self.progress.evaluation_begun()
        self.background.begin(step, weights)
        if waits:
            self.finish()

    def poll(self) -> None:
        """Logs the pending evaluation's result if it has arrived; without a `background`, evaluates first."""
        if self._pending and (self.background is None or self.background.has_answered):
            self.finish()

    def finish(self) -> bool:
        """Waits for the pending evaluation and logs its result; returns False if a signal interrupts the wait."""
        if self._pending is not None and self.background is not None:
            try:
                result = self.stopping.interruptible(self.background.wait)
            except LostError as lost:
                step = self._pending.step
                tqdm.write(
                    f"The evaluation at step {step} is repeated, and from now on training waits for evaluations: {lost}"
                )
                self.background.close()
                self.background = None
            else:
                if result is None:
                    return False
                self._log(*result, self._pending)
                self._pending = None
        if self._pending is not None and self._evaluate_here(self._pending):
            self._pending = None
        return self._pending is None

    def _evaluate_here(self, pending: Pending) -> bool:
        """Evaluates in this process and logs the result; returns False if a signal interrupts the evaluation."""
        actor = self.agent if pending.weights is None else self.agent.policy.with_weights(pending.weights)
        started_s = time.perf_counter()
        evaluation = self.stopping.interruptible(lambda: self.evaluator.evaluate(actor, pending.step))
        if evaluation is None:
            return False
        if pending.weights is None:
            self.progress.evaluation_begun()
        self._log(evaluation, time.perf_counter() - started_s, pending)
        self.progress.exclude_time(time.perf_counter() - started_s)
        return True

    def _log(self, evaluation: Evaluation, seconds: float, pending: Pending) -> None:
        """Logs and counts a result, keeps the policy if it is the best, and may prune the run."""
        step, returns, lengths = pending.step, evaluation.returns, evaluation.lengths
        mean_return = float(np.mean(returns))
        infos = {key: float(np.mean(values)) for key, values in getattr(evaluation, "infos", {}).items()}
        score = self._score(infos)
        policy = getattr(self.agent, "policy", None)
        if self.progress.is_best(mean_return, score) and self.keep_best is not None and policy is not None:
            evaluated = policy if pending.weights is None else policy.with_weights(pending.weights)
            self.keep_best(evaluated, step, mean_return)
        if self.progress.evaluated(step, mean_return, self.solved_from, score):
            tqdm.write(f"Solved at step {step}: {mean_return:.1f} reaches the task's {self.solved_from:g}")
        for key, value in {
            "eval/episode": pending.episode,
            "eval/episode_reward": mean_return,
            "eval/episode_reward_std": float(np.std(returns)),
            "eval/episode_reward_min": min(returns),
            "eval/episode_reward_max": max(returns),
            "eval/episode_length": float(np.mean(lengths)),
            "eval/episode_length_std": float(np.std(lengths)),
            "eval/episode_length_min": min(lengths),
            "eval/episode_length_max": max(lengths),
            "eval/duration": seconds,
            **{f"eval_info/{key}": value for key, value in infos.items()},
        }.items():
            self.logger.log(key, value, step)
        preview = getattr(evaluation, "preview", None)  # a user's evaluator or logger may not support videos
        if preview is not None and hasattr(self.logger, "log_video"):
            self.logger.log_video("eval/video", preview, step, evaluation.preview_fps)
        self.logger.dump(step, ty="eval")
        if self.prune is not None and self.prune(step):
            raise PrunedError(step)

    def _score(self, infos: dict[str, float]) -> float:
        """Returns what ranks evaluations before the mean return: 0 for `best_by=return`, -inf if the key is missing."""
        if self.best_by == BY_RETURN:
            return 0.0
        if self.best_by not in infos and self.progress.best_return is None:
            tqdm.write(f"best_by={self.best_by}: not in the info of this evaluation, so the return decides so far")
        return infos.get(self.best_by, -math.inf)

    def state_dict(self) -> dict[str, Any]:
        """Returns the pending evaluation with its weights, so that a resumed run can repeat it."""
        return {"pending": vars(self._pending) if self._pending else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the pending evaluation, and restarts it if it runs in the background."""
        pending = state["pending"]
        if pending is None:
            return
        counts = {name: require_count(pending[name], name) for name in ("step", "episode")}
        self.agent.policy.with_weights(pending["weights"])  # fails if they are the weights of other networks
        self._pending = Pending(**counts, weights=pending["weights"])
        if self.background is not None:
            self.background.begin(counts["step"], pending["weights"])

    def close(self) -> None:
        """Kills the background process, and closes the evaluator of this process."""
        if self.background is not None:
            self.background.close()
        if "evaluator" in vars(self):
            self.evaluator.close()
