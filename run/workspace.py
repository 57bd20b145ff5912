"""One run in its folder, from its parts to its end."""

import contextlib
import math
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf

from agent.policy import Policy
from envs.simulator import Simulator
from files.reading import read_bytes
from files.writing import write_bytes, write_text
from run.build import SEED_POLICY, Parts, background_evaluator, build
from run.evaluation.background import make_evaluator
from run.evaluation.evaluations import Evaluations, PrunedError
from run.evaluation.evaluator import Evaluator
from run.loop import Loop
from run.progress import Plan, Progress
from run.provenance import Provenance
from run.saving import best, checkpoint, trust
from run.saving import folder as run_folder
from run.saving.state import SavedRun
from run.stopping import Requeued, Stopped, Stopping
from settings.schema import Settings
from utils import EnvError, RunError, UserError, command_line, one_line


class Workspace:
    """Trains one run in its folder (see run/loop.py): builds its parts unless given, and reports how the run ended.

    Args:
        resume: continue from the folder's newest whole checkpoint.
        reuse: accept the folder of a run that ended before its first checkpoint, and so has no logs.
        without: damaged parts to resume without (see run/saving/damaged.py).
        trusted: data outside of the folder that a resumed run may read again (see run/saving/trust.py).
        parts: the result of `run.build.build` for the settings; None builds them.

    Raises:
        UserError: if the folder holds a run (or, to resume, none), or a part cannot be built here.
    """

    def __init__(
        self,
        cfg: Settings,
        work_dir: Path,
        resume: bool = False,
        reuse: bool = False,
        without: Sequence[str] = (),
        trusted: Sequence[str] = (),
        parts: Parts | None = None,
    ):
        self.cfg = cfg
        self.work_dir = work_dir
        try:
            self.lock = run_folder.Lock(work_dir)
            try:
                if not resume:
                    run_folder.refuse_used(work_dir, *[run_folder.LOGS] if reuse else [])
                parts = parts or build(cfg, work_dir if resume else None)
                self._open(parts, resume, without, trusted)
            except BaseException:
                self.lock.release()
                raise
        except OSError as error:
            if error.filename is None or not Path(str(error.filename)).is_relative_to(work_dir):
                raise
            raise UserError(f"{error.filename}: {error.strerror}") from error
        finally:
            if parts and not hasattr(self, "loop"):
                parts.close()

    def _open(self, parts: Parts, resume: bool, without: Sequence[str], trusted: Sequence[str]) -> None:
        cfg, work_dir = self.cfg, self.work_dir
        print(f"Folder: {work_dir}", flush=True)
        for note in parts.notes:
            print(note)
        seed_policy = work_dir / SEED_POLICY
        if cfg.seed_policy not in ("agent", "uniform") and not (resume and seed_policy.exists()):
            write_bytes(seed_policy, read_bytes(Path(cfg.seed_policy), inside=0))
        self.envs, self.used = parts.envs, parts.used
        self.agent = parts.agent
        self.preloaded = parts.data
        self.replay_buffer = parts.replay_buffer
        self.logger = instantiate(parts.used["logger"], _convert_="all")(log_dir=work_dir)
        make: Callable[[], Any] = partial(make_evaluator, cfg, work_dir, parts.films)
        # The project's evaluator is built when needed; a user's is built now, as it may have a state to restore.
        own_evaluator = None if get_object(cfg.evaluator["_target_"]) is Evaluator else make()
        self.stopping = Stopping(cfg.grace_s)
        self._best = best.BestPolicy(work_dir)
        plan = Plan.of(cfg)
        if not cfg.preload or cfg.preload_share:  # otherwise updates do not wait for the run's own transitions alone
            plan.note_if_no_update(parts.updates_from)
        self.progress = Progress(plan, parts.updates_from)
        self.evaluations = Evaluations(
            parts.agent,
            (lambda: own_evaluator) if own_evaluator else make,
            self.logger,
            self.progress,
            self.stopping,
            background_evaluator(cfg, parts, work_dir, own_evaluator),
            parts.solved_from,
            keep_best=self._keep_best if cfg.checkpoint_frequency else None,
            best_by=cfg.best_by,
        )
        self.saved = SavedRun(
            cfg, work_dir, parts, self.logger, own_evaluator, self.progress, self.evaluations, self._best
        )
        self._obs = self.saved.restore(without, trusted) if resume else None  # (num_envs, *obs_shape)
        if not resume:
            parts.data.fill(parts.agent)
        self.provenance = Provenance(work_dir, parts.device, self.progress.step)
        write_text(work_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(parts.used)))
        if not resume:
            self.logger.log_settings(parts.used)
        self.loop = Loop(parts, self.logger, self.progress, self.evaluations, self.stopping, self._save)

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return self.progress.step

    @property
    def evaluator(self) -> Any:
        """The evaluator of this process."""
        return self.evaluations.evaluator

    @property
    def last_return(self) -> float:
        """The mean return of the newest evaluation."""
        return self.progress.last_return

    def run(self) -> float:
        """Trains until the run is complete or pruned; returns the mean return of the final evaluation."""
        try:
            self._train()
        except KeyboardInterrupt as interrupt:
            with contextlib.suppress(OSError, RunError):  # a full disk: the run still ends as requested
                self.loop.end_unfinished_episodes()
            if isinstance(interrupt, Stopped):
                raise
            raise KeyboardInterrupt(f"interrupted at step {self.step}; logs in {self.work_dir}") from None
        except Requeued:
            raise
        except (RunError, OSError, SystemExit) as error:
            raise self._failure(error) from (error.__cause__ if isinstance(error, EnvError) else error)
        finally:
            with contextlib.suppress(OSError):
                self.logger.close()
            if self.cfg.save_figure and self.progress.step and self.stopping.signal_number in (None, signal.SIGINT):
                self._draw()
        return self.progress.last_return

    def _draw(self) -> None:
        if not self.lock.is_in_place():
            return
        try:
            import plot  # not before: matplotlib takes a second to import

            plot.draw_run(self.work_dir)
        except (OSError, UserError):  # plot.py reports what is wrong with a log
            pass
        except Stopped:
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted after step {self.step}; logs in {self.work_dir}") from None
        except Exception as error:  # a broken matplotlib must not change how the run ended
            print(f"No curves.png: {type(error).__name__}: {one_line(error)}", file=sys.stderr, flush=True)

    def _train(self) -> None:
        with self.stopping:  # until the run is marked as finished
            pruned_at = None
            try:
                if not self.loop.run(self._obs):
                    self._stop()
            except PrunedError as pruned:
                pruned_at = pruned.step
            self.logger.close()
            self.lock.require_in_place()
            step, is_pruned = (self.step, False) if pruned_at is None else (pruned_at, True)
            result = self.progress.last_return, self.progress.solved_step
            run_folder.mark_finished(self.work_dir, step, *result, is_pruned)
            if self.stopping.signal_number:  # received since the last step: it also ends a sweep
                self._stop()

    def _save(self, is_last: bool) -> None:
        self.lock.require_in_place()
        self.saved.save(is_last)

    def _keep_best(self, policy: Policy, step: int, mean_return: float) -> None:
        self.lock.require_in_place()
        self._best.keep(policy, step, mean_return)

    def _failure(self, error: BaseException) -> RunError:
        """Returns an error with the reason, the step at which the run stopped, and the newest good checkpoint."""
        reason = one_line(error)
        last = self.saved.last_checkpoint
        if not self.lock.is_in_place():
            kept = f"its folder {self.work_dir} was moved or deleted while it ran"
        else:
            kept = f"the last good checkpoint is {last}" if last and last.is_dir() else "nothing was saved"
        message = f"{reason}; stopped at step {self.step}; {kept}"
        return EnvError(message, error.trace) if isinstance(error, EnvError) else RunError(message)

    def _stop(self) -> None:
        assert self.stopping.signal_number is not None
        if self.stopping.signal_number == signal.SIGINT:
            message = f"interrupted at step {self.step}; logs in {self.work_dir}"
        else:
            message = f"{signal.Signals(self.stopping.signal_number).name} at step {self.step}"
        if self.saved.is_saved:
            message += f"; continue with: {command_line('train.py', f'resume={self.work_dir}')}"
        self.stopping.end(message)

    def close(self) -> None:
        """Closes the environments and the evaluator, and releases the folder's lock."""
        self.loop.stepping.close()
        for part in (self.envs, self.evaluations):
            try:
                part.close()
            except EnvError as error:  # the run has ended, well or with a fault that is reported
                print(one_line(error), file=sys.stderr, flush=True)
        if self.lock.is_in_place():
            self.provenance.end(self.step)
        self.lock.release()

    def summary(self) -> list[str]:
        """Returns the last lines of a run: its result, its folder, and the commands that come next."""
        folder, progress = self.work_dir, self.progress
        result = f"{'Pruned' if run_folder.was_pruned(folder) else 'Finished'} at step {progress.step}"
        if not math.isnan(progress.last_return):
            result += f": return {progress.last_return:.1f}"
        if (kept := best.result_of(folder)) is not None:
            result += f"; best {kept[1]:.1f}, at step {kept[0]}"
        elif progress.best_return is not None:
            result += f"; best {progress.best_return:.1f}"
        lines = [result, f"Folder:   {folder}"]
        if checkpoint.newest_first(folder):  # neither command works without one
            names = (f"--trust={name}" for name in trust.named_by(self.used))
            command = command_line("evaluate.py", str(folder), *names)
            watch = [] if isinstance(self.envs, Simulator) else [f"Watch:    {command} --view"]
            lines += [*watch, f"Evaluate: {command}"]
        return lines


def train(
    cfg: Settings, folder: Path, prune: Callable[[int], bool] | None = None, summarises: bool = True, **how: Any
) -> float:
    """Trains a run from its start, or its newest checkpoint, to its end.

    Args:
        prune: see Evaluations.
        summarises: whether to print the result and the commands that come next.
        how: further arguments of Workspace.

    Returns:
        The mean return of the final evaluation.
    """
    workspace = Workspace(cfg, folder, **how)
    workspace.evaluations.prune = prune
    try:
        last_return = workspace.run()
    finally:
        workspace.close()
    if summarises:
        print("\n".join(workspace.summary()), flush=True)
    return last_return
