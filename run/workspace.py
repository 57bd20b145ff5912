"""One run in its folder, from its parts to its end."""

import contextlib
import shlex
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from run.build import build
from run.evaluation.evaluations import Evaluations, PrunedError
from run.loop import Loop
from run.progress import Plan, Progress
from run.saving import best
from run.saving import folder as run_folder
from run.saving.state import SavedRun
from run.stopping import Stopped, Stopping
from settings.schema import Settings
from utils import EnvError, RunError, UserError, one_line, write_atomically


class Workspace:
    """One run in its folder: builds the parts, trains (see run/loop.py), and says how it ended.

    Args:
        cfg: the checked settings.
        work_dir: the run's folder.
        resume: continue from the folder's newest whole checkpoint.
        reuse: take the folder of a run that ended before its first checkpoint, and so has no logs.
        without: to resume, what may be left out if it is damaged (see run/saving/damaged.py).

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
    ):
        self.lock = run_folder.Lock(work_dir)
        try:
            if not resume:
                run_folder.refuse_used(work_dir, *[("train.csv", "eval.csv")] if reuse else [])
            self._build(cfg, work_dir, resume, without)
        except OSError as error:
            self.lock.release()
            if error.filename is None or not Path(str(error.filename)).is_relative_to(work_dir):
                raise
            raise UserError(f"{error.filename}: {error.strerror}") from error
        except BaseException:
            self.lock.release()
            raise

    def _build(self, cfg: Settings, work_dir: Path, resume: bool, without: Sequence[str]) -> None:
        parts = build(cfg, work_dir)
        self.cfg = cfg
        self.work_dir = work_dir
        self.envs = parts.envs
        self.agent = parts.agent
        self.replay_buffer = parts.replay_buffer
        self.preloaded = parts.preloaded
        self.logger = parts.logger
        self.stopping = Stopping(cfg.grace_s)
        plan = Plan.of(cfg)
        plan.note_if_no_update(parts.updates_from)
        self.progress = Progress(plan, parts.updates_from)
        self.evaluations = Evaluations(
            self.agent,
            parts.make_evaluator,
            self.logger,
            self.progress,
            self.stopping,
            parts.background,
            parts.solved_from,
            keep_best=partial(best.keep, work_dir) if cfg.checkpoint_frequency else None,
        )
        self.saved = SavedRun(cfg, work_dir, parts, self.progress, self.evaluations)
        self.loop = Loop(
            plan,
            parts.envs,
            may_step_in_thread=parts.may_step_in_thread,
            agent=parts.agent,
            seed_policy=parts.seed_policy,
            n_step=parts.n_step,
            replay_buffer=parts.replay_buffer,
            data=parts.preloaded,
            logger=parts.logger,
            progress=self.progress,
            evaluations=self.evaluations,
            stopping=self.stopping,
            save=self.saved.save,
        )
        if not resume:
            self.preloaded.fill(self.agent)
        self._obs = self.saved.restore(without) if resume else None  # (num_envs, obs_dim), where the run goes on
        write_atomically(work_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(parts.used)))
        if not resume:
            self.logger.log_settings(parts.used)

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
        """Trains to the end, or until it is pruned.

        Returns:
            The mean return of the final evaluation.
        """
        try:
            with self.stopping:
                if not self.loop.run(self._obs):
                    self._stop()
            self.logger.close()
            run_folder.mark_finished(self.work_dir, self.step, self.last_return, self.progress.solved_step)
        except PrunedError as pruned:
            self.logger.close()
            run_folder.mark_finished(self.work_dir, pruned.step, self.last_return, self.progress.solved_step, True)
        except KeyboardInterrupt as interrupt:
            self.loop.end_unfinished_episodes()
            if isinstance(interrupt, Stopped):
                raise
            raise KeyboardInterrupt(f"interrupted at step {self.step}; logs in {self.work_dir}") from None
        except (RunError, OSError) as error:
            last = self.saved.last_checkpoint
            kept = f"the last good checkpoint is {last}" if last else "nothing was saved"
            said = f"{one_line(error)}; stopped at step {self.step}; {kept}"
            if isinstance(error, EnvError):
                raise EnvError(said, error.trace) from error.__cause__
            raise RunError(said) from error
        finally:
            with contextlib.suppress(OSError):
                self.logger.close()
                if self.cfg.save_figure and self.progress.step and self.stopping.asked in (None, signal.SIGINT):
                    import plot  # not before: matplotlib takes a second to import

                    plot.draw_run(self.work_dir)
        return self.last_return

    def _stop(self) -> None:
        assert self.stopping.asked is not None
        if self.stopping.asked == signal.SIGINT:
            message = f"interrupted at step {self.step}; logs in {self.work_dir}"
        else:
            message = f"{signal.Signals(self.stopping.asked).name} at step {self.step}"
        if self.saved.is_saved:
            message += f"; continue with: python train.py {shlex.quote(f'resume={self.work_dir}')}"
        self.stopping.end(message)

    def close(self) -> None:
        """Closes the environments and lets others into the folder."""
        self.loop.stepping.close()
        self.envs.close()
        self.evaluations.close()
        self.lock.release()


def train(cfg: Settings, folder: Path, prune: Callable[[int], bool] | None = None, **how: Any) -> float:
    """A run from its start, or its newest checkpoint, to its end; returns the mean return of the final evaluation."""
    workspace = Workspace(cfg, folder, **how)
    workspace.evaluations.prune = prune
    try:
        return workspace.run()
    finally:
        workspace.close()
