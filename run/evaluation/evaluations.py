"""A run's evaluations and their rows: made when they are due, here, or beside the training."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tqdm import tqdm

from run.evaluation.background import BackgroundEvaluator, LostError
from run.evaluation.evaluator import Evaluation
from run.progress import Progress
from run.stopping import Stopping
from utils import require_count


class PrunedError(Exception):
    """Ends a run early because other trials of its study did better.

    Args:
        step: the step of the evaluation after which the run ends.
    """

    def __init__(self, step: int):
        super().__init__(f"pruned at step {step}")
        self.step = step


@dataclass
class Pending:
    """An evaluation under way: after which step, and of whom.

    Attributes:
        episode: training episodes until then.
        weights: of the policy then.
    """

    step: int
    episode: int
    weights: dict[str, Any]


class Evaluations:
    """Evaluates the agent when it is due, and logs what comes of it.

    In the background, the weights of that moment are evaluated while training goes on; it waits for the result when the
    next evaluation is due, and at its end. Numbers, rows and their order are the same either way.

    Args:
        agent: with a `policy`, if there is a `background`.
        make_evaluator: builds the evaluator of this process, when the first evaluation is made here.
        logger, progress, stopping: the run's.
        background: runs them in a process of its own; None runs all of them here.
        solved_from: the mean return from which on the task counts as solved; None where it names none.
        keep_best: keeps a policy (see run/saving/best.py), given it, the step and the mean return.

    Attributes:
        prune: decides, given the step of the newest row, whether a PrunedError ends the run; None is never. With it,
            training waits for evaluations: otherwise it would depend on time whether a run is pruned or fails first.
    """

    def __init__(
        self,
        agent: Any,
        make_evaluator: Callable[[], Any],
        logger: Any,
        progress: Progress,
        stopping: Stopping,
        background: BackgroundEvaluator | None,
        solved_from: float | None,
        keep_best: Callable[[Any, int, float], None] | None,
    ):
        self._agent = agent
        self._make_evaluator = make_evaluator
        self._logger = logger
        self._progress = progress
        self._stopping = stopping
        self._background = background
        self._solved_from = solved_from
        self._keep_best = keep_best
        self.prune: Callable[[int], bool] | None = None
        self._pending: Pending | None = None

    @cached_property
    def evaluator(self) -> Any:
        """The one of this process."""
        return self._make_evaluator()

    def evaluate(self, is_last: bool = False) -> None:
        """The evaluation that is due, after the one before; a signal leaves it due.

        Args:
            is_last: nothing else is left to do, so this one is waited for.
        """
        if not self.finish():
            return
        waits = is_last or self.prune is not None
        if self._background is None or (waits and not self._background.has_begun):
            self._here(self._agent, self._progress.step, self._progress.episode)
            return
        self._pending = Pending(self._progress.step, self._progress.episode, self._agent.policy.weights())
        self._progress.evaluation_begun()
        self._background.begin(self._pending.step, self._pending.weights)
        if waits:
            self.finish()

    def look(self) -> None:
        """Logs the one under way, if it is made by now."""
        if self._pending and (self._background is None or self._background.has_answered):
            self.finish()

    def finish(self) -> bool:
        """Waits for the one under way; returns whether none is left, which a signal prevents."""
        if self._pending is None:
            return True
        step, episode = self._pending.step, self._pending.episode
        if self._background is not None:
            try:
                made = self._stopping.cuttable(self._background.wait)
            except LostError as lost:
                tqdm.write(f"The evaluation at step {step} is made again, and from now on training waits: {lost}")
                self._background.close()
                self._background = None
            else:
                if made is not None:
                    self._note(made.evaluation, made.seconds, step, episode, self._pending.weights)
                    self._pending = None
                return made is not None
        policy = self._agent.policy.with_weights(self._pending.weights)
        if self._here(policy, step, episode, self._pending.weights):
            self._pending = None
        return self._pending is None

    def _here(self, actor: Any, step: int, episode: int, weights: dict[str, Any] | None = None) -> bool:
        """Evaluates in this process; returns whether it was not cut short."""
        started_s = time.perf_counter()
        evaluation = self._stopping.cuttable(lambda: self.evaluator.evaluate(actor, step))
        if evaluation is None:
            return False
        if weights is None:
            self._progress.evaluation_begun()
        self._note(evaluation, time.perf_counter() - started_s, step, episode, weights)
        self._progress.leave_out(time.perf_counter() - started_s)
        return True

    def _note(
        self, evaluation: Evaluation, seconds: float, step: int, episode: int, weights: dict[str, Any] | None
    ) -> None:
        """Writes the row of an evaluation, and counts it.

        Args:
            weights: of the policy that was evaluated; None is the agent's as it is now.
        """
        returns, lengths = dataclasses.astuple(evaluation)
        mean_return = float(np.mean(returns))
        if self._progress.is_best(mean_return):
            self._keep(weights, step, mean_return)
        if self._progress.evaluated(step, mean_return, self._solved_from):
            tqdm.write(f"Solved at step {step}: {mean_return:.1f} reaches the task's {self._solved_from:g}")
        for key, value in {
            "eval/episode": episode,
            "eval/episode_reward": mean_return,
            "eval/episode_reward_std": float(np.std(returns)),
            "eval/episode_reward_min": min(returns),
            "eval/episode_reward_max": max(returns),
            "eval/episode_length": float(np.mean(lengths)),
            "eval/episode_length_std": float(np.std(lengths)),
            "eval/episode_length_min": min(lengths),
            "eval/episode_length_max": max(lengths),
            "eval/duration": seconds,
        }.items():
            self._logger.log(key, value, step)
        self._logger.dump(step, ty="eval")
        if self.prune is not None and self.prune(step):
            raise PrunedError(step)

    def _keep(self, weights: dict[str, Any] | None, step: int, mean_return: float) -> None:
        policy = getattr(self._agent, "policy", None)
        if self._keep_best is not None and policy is not None:
            self._keep_best(policy if weights is None else policy.with_weights(weights), step, mean_return)

    def state_dict(self) -> dict[str, Any]:
        """The one under way, to be made again from its weights."""
        return {"pending": vars(self._pending) if self._pending else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begins the one that was under way anew."""
        pending = state["pending"]
        if pending is None:
            return
        counts = {name: require_count(pending[name], name) for name in ("step", "episode")}
        self._pending = Pending(**counts, weights=pending["weights"])
        self._agent.policy.with_weights(self._pending.weights)  # fails if they are not its own
        if self._background is not None:
            self._background.begin(self._pending.step, self._pending.weights)

    def close(self) -> None:
        if self._background is not None:
            self._background.close()
        if "evaluator" in vars(self):
            self.evaluator.close()
