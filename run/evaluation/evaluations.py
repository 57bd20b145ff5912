"""Makes and logs the evaluations that are due, in this process or in the background, and keeps the best policy."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from agent.policy import Policy, load_policy, plain_policy
from run.evaluation.background import BackgroundEvaluator
from run.evaluation.evaluator import Evaluation
from run.progress import Progress
from run.stopping import Stopping
from utils import UserError, one_line, replacing

BEST = "checkpoints/best"  # in a run's folder; holds policy.pt


class PrunedError(Exception):
    """Ends a run after an evaluation, because other trials of its study did better."""


class BestPolicy:
    """Keeps the policy of the best evaluation in a file, with its step and mean return.

    A resumed run evaluates the steps after its checkpoint again, to the same returns, so the file may be newer.
    """

    def __init__(self, run_folder: Path):
        self._path = run_folder / BEST / "policy.pt"
        best = torch.load(self._path, map_location="cpu", weights_only=True) if self._path.exists() else {}
        self.mean_return: float = best.get("return", -math.inf)

    def keep(self, policy: Policy, step: int, mean_return: float) -> None:
        """Replaces the best policy, unless the agent's `build` made none of it. A full disk is one printed line."""
        try:
            state = plain_policy(policy) | {"step": step, "return": mean_return}
            for folder in (self._path.parents[1], self._path.parent):
                folder.mkdir(exist_ok=True)
            with replacing(self._path) as partial:
                torch.save(state, partial)
            self.mean_return = mean_return
        except UserError:
            return
        except (OSError, RuntimeError) as error:
            print(f"The best policy so far, of step {step}, could not be saved: {error}", file=sys.stderr, flush=True)


def load_best(run_folder: Path, device: str = "cpu", trusted: Sequence[str] = ()) -> tuple[Policy, int, float]:
    """Returns a run's best policy, and the step and mean return of its evaluation; raises UserError without one."""
    path = run_folder / BEST / "policy.pt"
    if not path.exists():
        raise UserError(f"{path}: missing; it is written after the first evaluation")
    saved = torch.load(path, map_location="cpu", weights_only=True)
    return load_policy(path, device, trusted=trusted), saved["step"], saved["return"]


class Pending(NamedTuple):
    """An evaluation without a result."""

    step: int
    episode: int  # finished training episodes
    weights: dict[str, Any] | None  # the policy's, for the background; None: the agent's current ones


@dataclass(eq=False)
class Evaluations:
    """Evaluates the agent when it is due, and logs the results.

    In the background, a copy of the policy's weights is evaluated while training goes on. Training waits for the result
    when the next evaluation is due, and at the end of the run. Results and their order are as without `background`.

    Attributes:
        make_evaluator: builds an evaluator, for the first evaluation in this process; None never evaluates.
        best: keeps the best policy so far; None keeps none.
        prune: decides from the step of a new result whether the run ends with a PrunedError. With it, training always
            waits for evaluations; otherwise timing would decide at which step a run is pruned.
    """

    agent: Any
    make_evaluator: Callable[[], Any] | None
    logger: Any
    progress: Progress
    stopping: Stopping
    background: BackgroundEvaluator | None = None
    best: BestPolicy | None = None
    prune: Callable[[int], bool] | None = None
    _pending: Pending | None = field(default=None, init=False)

    @cached_property
    def evaluator(self) -> Any:
        """The evaluator of this process."""
        assert self.make_evaluator is not None
        return self.make_evaluator()

    def evaluate(self, is_last: bool = False) -> None:
        """Runs or starts the evaluation that is due, once the previous one has finished; waits with `is_last`, `prune`.

        A signal interrupts it; then it stays pending.
        """
        if self.make_evaluator is None or not self.finish():
            return
        waits = is_last or self.prune is not None
        background = None if waits else self.background
        weights = self.agent.policy.weights() if background else None
        self._pending = Pending(self.progress.step, self.progress.episode, weights)
        self.progress.evaluation_due, self.progress.last_eval_step = False, self.progress.step
        if background and weights:
            background.begin(self.progress.step, weights)
        if waits or not background:
            self.finish()

    def poll(self) -> None:
        """Logs the pending evaluation's result if it has arrived, or would be computed here."""
        pending, background = self._pending, self.background
        if pending and (background is None or pending.weights is None or background.has_answered):
            self.finish()

    def finish(self) -> bool:
        """Waits for the pending evaluation and logs its result; returns False if a signal interrupts the wait."""
        if (pending := self._pending) is None:
            return True
        if (result := self.stopping.interruptible(lambda: self._compute(pending))) is None:
            return False
        self._pending = None
        self._log(pending, *result)
        return True

    def _compute(self, pending: Pending) -> tuple[Evaluation, float]:
        """Returns the evaluation, and the seconds that it took."""
        if self.background and pending.weights is not None:
            try:
                return self.background.wait()
            except Exception as error:  # its process died or hangs; what the evaluation raises, it raises again here
                reason = f"{type(error).__name__}: {one_line(error)}"
                tqdm.write(f"From step {pending.step} on, training waits for evaluations ({reason})")
                self.background.close()
                self.background = None
        started_s = time.perf_counter()
        actor = self.agent if pending.weights is None else self.agent.policy.with_weights(pending.weights)
        evaluation = self.evaluator.evaluate(actor, pending.step)
        seconds = time.perf_counter() - started_s
        self.progress.exclude_time(seconds)
        return evaluation, seconds

    def _log(self, pending: Pending, evaluation: Evaluation, seconds: float) -> None:
        """Logs and counts a result, keeps the policy if it is the best, and may prune the run."""
        step, mean_return = pending.step, float(np.mean(evaluation.returns))
        infos = {key: float(np.mean(values)) for key, values in getattr(evaluation, "infos", {}).items()}
        policy = getattr(self.agent, "policy", None)
        if self.best and policy is not None and mean_return > self.best.mean_return:
            evaluated = policy if pending.weights is None else policy.with_weights(pending.weights)
            self.best.keep(evaluated, step, mean_return)
        self.progress.last_return = mean_return
        row: dict[str, float] = {"eval/episode": pending.episode}
        for name, values in (("reward", evaluation.returns), ("length", evaluation.lengths)):
            row |= {f"eval/episode_{name}": float(np.mean(values)), f"eval/episode_{name}_std": float(np.std(values))}
            row |= {f"eval/episode_{name}_min": min(values), f"eval/episode_{name}_max": max(values)}
        row |= {"eval/duration": seconds, **{f"eval_info/{key}": value for key, value in infos.items()}}
        for key, value in row.items():
            self.logger.log(key, value, step)
        self.logger.dump(step, ty="eval")
        if self.prune is not None and self.prune(step):
            raise PrunedError

    def state_dict(self) -> dict[str, Any]:
        return {"pending": self._pending._asdict() if self._pending else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the pending evaluation, and restarts it if it runs in the background."""
        if pending := state["pending"]:
            self._pending = Pending(**pending)
            if self.background and pending["weights"] is not None:
                self.background.begin(pending["step"], pending["weights"])

    def close(self) -> None:
        if self.background is not None:
            self.background.close()
        if "evaluator" in vars(self):
            self.evaluator.close()
