"""Trains an agent: `python train.py env=cheetah_run`."""

import sys

if __name__ == "__main__":
    from launch import early

    ASKED = early.look(sys.argv[1:])  # before torch and dm_control are imported: a mistake need not wait for them

import contextlib
import math
import shlex
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import numpy as np
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from envs.stepping import Stepping
from launch import command, job
from launch.asked import Asked
from launch.preflight import check_machine
from run import best
from run import folder as run_folder
from run.build import build
from run.evaluations import Evaluations
from run.progress import Progress, note_if_no_update
from run.state import SavedRun, require_finite_losses
from run.stopping import Stopping
from settings import compose
from settings.check import Settings
from utils import EnvError, RunError, Stopped, UserError, one_line, require_finite, write_atomically

OFFLINE_ROW_STEPS = 1000  # between rows of train.csv while there are no episodes


class Workspace:
    """One run: builds the parts, and steps environment and agent until `num_train_steps`.

    Args:
        cfg: the checked settings.
        work_dir: the run's folder.
        resume: continue from the folder's newest whole checkpoint.
        reuse: take the folder of a run that ended before its first checkpoint, and so has no logs.
        without: to resume, what may be left out if it is damaged (see run/salvage.py).

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
        self.stepping = Stepping(parts.envs, parts.may_step_beside)
        self.agent = parts.agent
        self.seed_policy = parts.seed_policy
        self.n_step = parts.n_step
        self.replay_buffer = parts.replay_buffer
        self.preloaded = parts.preloaded
        self.logger = parts.logger
        self.stopping = Stopping(cfg.grace_s)
        note_if_no_update(cfg, parts.updates_from)
        self.progress = Progress(cfg, parts.updates_from)
        self.evaluations = Evaluations(
            self.agent,
            parts.make_evaluator,
            self.logger,
            self.progress,
            self.stopping,
            parts.beside,
            parts.solved_from,
            partial(best.keep, work_dir) if cfg.checkpoint_frequency else None,
        )
        self.saved = SavedRun(cfg, work_dir, parts, self.progress, self.evaluations)
        self._faults = parts.faults
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
        """Trains to the end.

        Returns:
            The mean return of the final evaluation.
        """
        on_terminal = sys.stderr.isatty()
        bar = tqdm(
            total=self.cfg.num_train_steps, initial=self.step, unit="step", dynamic_ncols=True, disable=not on_terminal
        )
        try:
            with self.stopping:
                self._train(bar)
            self.logger.close()
            run_folder.mark_finished(self.work_dir, self.step, self.last_return, self.progress.solved_step)
        except KeyboardInterrupt as interrupt:
            self._end_unfinished_episodes()
            if isinstance(interrupt, Stopped):
                raise
            raise KeyboardInterrupt(f"interrupted at step {self.step}; logs in {self.work_dir}") from None
        except self._faults as error:
            last = self.saved.last_checkpoint
            kept = f"the last good checkpoint is {last}" if last else "nothing was saved"
            said = f"{one_line(error)}; stopped at step {self.step}; {kept}"
            if isinstance(error, EnvError):
                raise EnvError(said, error.trace) from error.__cause__
            raise RunError(said) from error
        finally:
            bar.close()
            with contextlib.suppress(OSError):
                self.logger.close()
                if self.cfg.save_figure and self.progress.step and self.stopping.asked in (None, signal.SIGINT):
                    import plot  # not before: matplotlib takes a second to import

                    plot.draw_run(self.work_dir)
        return self.last_return

    def _train(self, bar: tqdm) -> None:
        cfg, agent, progress = self.cfg, self.agent, self.progress
        obs = self._begin_episodes(np.ones(cfg.num_envs, bool)) if self._obs is None else self._obs
        if self.saved.last_checkpoint is None:
            self.saved.save()  # so that there are never logs without one
        while True:
            if progress.evaluation_due:
                self.evaluations.evaluate()
            else:
                self.evaluations.look()
            if self.stopping.asked:
                self.saved.save()
                self._stop()
            if progress.step >= cfg.num_train_steps:
                break
            if progress.step < cfg.offline_updates:
                bar.update(self._update_offline())
                continue
            seeding = progress.step < cfg.num_seed_steps
            actions = (self.seed_policy if seeding else agent).act(obs, sample=True)
            require_finite("action", actions)
            # The updates do not see the step's transitions, and it may be taken meanwhile.
            step_result = self.stepping.begin(actions)
            if (cfg.updates_while_seeding or not seeding) and self.replay_buffer.num_added >= progress.updates_from:
                for _ in range(progress.take_updates(self.replay_buffer.num_added + self.n_step.num_pending)):
                    agent.update(self.preloaded.batches, self.logger, progress.step)
            next_obs, rewards, terminated, truncated, info = step_result()
            require_finite("observation", next_obs)
            require_finite("reward", rewards)
            done = terminated | truncated
            agent.observe(obs, actions, rewards, next_obs, terminated, truncated)
            for row in self.n_step.rows(obs, actions, rewards, next_obs, done, terminated):
                self.replay_buffer.add(*row)
            obs = next_obs
            bar.update(progress.count(rewards, info["repeats"]))
            if done.any():
                for index in np.flatnonzero(done):
                    bar.set_postfix_str(self._end_episode(int(index)), refresh=False)
                obs = self._begin_episodes(done)
            if progress.checkpoint_due:
                self.saved.save()  # before the evaluation, which can be made again
        if not self.evaluations.finish():
            self.saved.save()
            self._stop()
        self.saved.save()  # before the rows that only the end has, so that a longer run can go on from here
        if self.saved.is_saved and not self.saved.is_current:
            raise RunError("the run's end is in no checkpoint")
        self._end_unfinished_episodes()
        if progress.last_eval_step != progress.step:
            self.evaluations.evaluate(is_last=True)
            if self.stopping.asked:
                self._stop()

    def _update_offline(self) -> int:
        """One update on what was preloaded, while the environments wait; returns the steps that it counts as."""
        self.agent.update(self.preloaded.offline, self.logger, self.step)
        steps = self.progress.count_offline()
        if self.step % OFFLINE_ROW_STEPS == 0:
            require_finite_losses(self.logger.dump(self.step, ty="train"))
        if self.progress.checkpoint_due:
            self.saved.save()
        return steps

    def _stop(self) -> None:
        assert self.stopping.asked is not None
        if self.stopping.asked == signal.SIGINT:
            message = f"interrupted at step {self.step}; logs in {self.work_dir}"
        else:
            message = f"{signal.Signals(self.stopping.asked).name} at step {self.step}"
        if self.saved.is_saved:
            message += f"; continue with: python train.py {shlex.quote(f'resume={self.work_dir}')}"
        self.stopping.end(message)

    def _begin_episodes(self, which: np.ndarray) -> np.ndarray:
        """Resets the environments in the mask `which`; returns everyone's newest observation."""
        self.agent.reset()
        self.progress.begin_episodes(which)
        obs = self.envs.reset(options={"reset_mask": which})[0]
        require_finite("observation", obs)
        return obs

    def _end_unfinished_episodes(self) -> None:
        """The rows of the episodes that a run's end cuts short."""
        for index in self.progress.unfinished():
            self._end_episode(index)

    def _end_episode(self, index: int) -> str:
        """Dumps the row of one environment's episode; returns what the progress bar says of it."""
        ended = self.progress.end_episode(index)
        for name, value in ended.items():
            self.logger.log(f"train/{name}", value, self.step)
        row = self.logger.dump(self.step, ty="train")
        require_finite_losses(row)
        said = f"episode {ended['episode']}, {ended['episode_length']} steps, return {ended['episode_reward']:.1f}"
        for key, name, digits in (("train_actor/loss", "actor loss", 2), ("train_alpha/value", "alpha", 3)):
            said += f", {name} {row[key]:.{digits}f}" if key in row else ""  # not every agent has a temperature
        return said if math.isnan(self.last_return) else f"{said}, evaluated at {self.last_return:.1f}"

    def close(self) -> None:
        """Closes the environments and lets others into the folder."""
        self.stepping.close()
        self.envs.close()
        self.evaluations.close()
        self.lock.release()


def _run(cfg: Settings, folder: Path, **how: Any) -> float:
    """A run from its start, or its newest checkpoint, to its end; returns the mean return of the final evaluation."""
    workspace = Workspace(cfg, folder, **how)
    try:
        return workspace.run()
    finally:
        workspace.close()


def train(config: DictConfig) -> float:
    """Hydra's job; returns the mean return of the final evaluation."""
    return job.run(config, _run)


def continue_run(
    folder: Path,
    overrides: list[str],
    config_name: str | None = None,
    trusted: Sequence[str] = (),
    without: Sequence[str] = (),
) -> float:
    """Continues the run in a folder (see job.continue_run), without what may be left out of it (see run/salvage.py)."""
    return job.continue_run(folder, overrides, config_name, trusted, partial(_run, without=without))


hydra_main = hydra.main(version_base="1.3", config_path=str(compose.CONFIG_DIR), config_name="train")(train)


def main(asked: Asked | None = None) -> int:
    """What the command line asks for, of which a first look may have composed it; returns the exit code."""
    return command.run(hydra_main, check_machine, continue_run, asked)


if __name__ == "__main__":
    import train as by_its_name  # under which a worker of a sweep, elsewhere, can import what it is to do

    sys.exit(by_its_name.main(ASKED))
