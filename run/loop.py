"""The training loop. `train.py` runs it in a run's folder, and `run/library.py` without one."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from envs.episodes import EPISODE_INFO, TAKEN
from envs.stepping import Stepping
from replay.n_step import batch_adder
from utils import require_finite, require_finite_losses

ROW_OF_EACH = 64  # one train.csv row per episode up to this many environments; above, per group that ends together


class Loop:
    """Steps environments and agent until `num_train_steps`; evaluates, logs and saves when due.

    Args:
        workspace: a Workspace (run/workspace.py), or an object with what is used of it here: `cfg`, `envs`, `agent`,
            `seed_policy` (acts for the first `num_seed_steps`), `n_step`, `replay_buffer`, `data` (what batches are
            drawn from), `logger`, `progress`, `evaluations`, `stopping`, `may_step_in_thread` and `save(is_last)`.
    """

    def __init__(self, workspace: Any):
        self.workspace, self.cfg = workspace, workspace.cfg
        self.progress, self.logger, self.evaluations = workspace.progress, workspace.logger, workspace.evaluations
        execution = getattr(workspace.agent, "execution", None) if workspace.may_step_in_thread else None
        self.stepping = Stepping(workspace.envs, execution)
        self.add_rows = batch_adder(workspace.replay_buffer)

    def run(self, obs: np.ndarray | None = None) -> bool:
        """Trains to the end; returns False if a signal stopped it, for which the run has been saved.

        Args:
            obs: (num_envs, *obs_shape), the newest observations if the run is resumed; None for a new run.

        Raises:
            RunError: if an action, observation, reward or loss is not finite.
        """
        workspace, cfg, progress = self.workspace, self.cfg, self.progress
        agent, replay_buffer, n_step = workspace.agent, workspace.replay_buffer, workspace.n_step
        obs = self.begin_episodes(np.ones(cfg.num_envs, bool)) if obs is None else obs
        workspace.save(False)  # so that there are never logs without a checkpoint
        # "1.00M/1.00M" and a short text behind it leave room for the bar itself in 80 columns.
        bar_options: Any = {"unit": " steps", "unit_scale": True, "dynamic_ncols": True}
        is_hidden = not sys.stderr.isatty()
        with tqdm(total=cfg.num_train_steps, initial=progress.step, disable=is_hidden, **bar_options) as self.bar:
            while True:
                if progress.evaluation_due:
                    self._evaluate()
                else:
                    self.evaluations.poll()
                if workspace.stopping.signal_number:
                    workspace.save(False)
                    return False
                if progress.step >= cfg.num_train_steps:
                    return self._finish()
                seeding = progress.step < cfg.num_seed_steps
                actions = (workspace.seed_policy if seeding else agent).act(obs, sample=True)
                require_finite("action", actions)
                # Updates do not use this step's transitions, so the environments may step meanwhile.
                step_result = self.stepping.prepare(actions)
                if (cfg.updates_while_seeding or not seeding) and replay_buffer.num_added >= progress.updates_from:
                    for _ in range(progress.take_updates(replay_buffer.num_added + n_step.num_pending)):
                        # `batches` is the replay buffer, or its mix with preloaded rows.
                        agent.update(workspace.data.batches, self.logger, progress.step)
                next_obs, rewards, terminated, truncated, info = step_result()
                require_finite("observation", next_obs)
                require_finite("reward", rewards)
                done = terminated | truncated
                agent.observe(obs, actions, rewards, next_obs, terminated, truncated)
                self.add_rows(*n_step.rows(obs, actions, rewards, next_obs, done, terminated, info.get(TAKEN)))
                obs = next_obs
                self.bar.update(progress.count(rewards, info["repeats"]))
                if done.any():
                    self.end_episodes(np.flatnonzero(done), info.get(EPISODE_INFO))
                    self._show_return()
                    obs = self.begin_episodes(done)
                if progress.checkpoint_due:
                    workspace.save(False)  # before the evaluation, which can be repeated

    def _evaluate(self, is_last: bool = False) -> None:
        """Runs or starts the evaluation that is due, and shows it in the bar, as training may wait for it."""
        self.bar.set_postfix_str(f"evaluating step {self.progress.step}")
        self.evaluations.evaluate(is_last)
        self._show_return()

    def _show_return(self) -> None:
        if not math.isnan(last_return := self.progress.last_return):
            self.bar.set_postfix_str(f"evaluated at {last_return:.1f}", refresh=False)

    def _finish(self) -> bool:
        """Runs the last evaluation and writes the last rows; returns whether nothing is left to do."""
        if not self.evaluations.finish():
            return False  # not saved: this step's checkpoint is the one below, which has the evaluation's result
        self.workspace.save(True)  # before the rows that only a run's end writes, so that a longer run can go on here
        self.end_episodes(self.progress.unfinished())
        if self.progress.last_eval_step != self.progress.step:
            self._evaluate(is_last=True)
            return not self.workspace.stopping.signal_number
        return True

    def begin_episodes(self, which: np.ndarray) -> np.ndarray:
        """Resets the environments in the mask `which`; returns the newest observation of every environment."""
        self.workspace.agent.reset()
        self.progress.begin_episodes(which)
        obs = self.workspace.envs.reset(options={"reset_mask": which})[0]
        require_finite("observation", obs)
        return obs

    def end_episodes(self, indices: np.ndarray, infos: Sequence[Any] | None = None) -> None:
        """Writes a row for the episode of each of these environments, or one row of their means (see ROW_OF_EACH), with
        what EPISODE_INFO has of each environment; None if the run's end cut the episodes short."""
        size = 1 if self.cfg.num_envs <= ROW_OF_EACH else max(1, len(indices))
        for together in indices.reshape(-1, size):
            for values in [] if infos is None else [infos[index] for index in together]:
                for name, value in values or ():
                    self.logger.log(f"train_info/{name}", value, self.progress.step)
            for name, value in self.progress.end_episodes(together).items():
                self.logger.log(f"train/{name}", value, self.progress.step)
            require_finite_losses(self.logger.dump(self.progress.step, ty="train"))
