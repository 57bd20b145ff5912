"""Trains an agent: `python train.py env=cheetah_run`."""

import contextlib
import dataclasses
import math
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

import cli
import device_buffer
import job
import run_folder
import run_state
import video
from agent.execution import choose_execution, set_execution
from build import (
    build_agent,
    build_n_step,
    build_seed_policy,
    check_machine,
    choose_storage,
    identity_of,
    note_if_slow,
    shapes_of,
    wants_opengl,
)
from checkpoint import Checkpoints
from settings import Settings
from stopping import Stopping
from utils import (
    Every,
    RunError,
    Stopped,
    keep_freed_memory,
    require_finite,
    resolve_device,
    set_precision,
    set_seed_everywhere,
    write_atomically,
)

NO_OPENGL = "No videos: no OpenGL was found here. Install libosmesa6 (apt), or a GPU driver with EGL, to get them."


class Workspace:
    """One run: builds the parts, and steps environment and agent until `num_train_steps`.

    Args:
        cfg: the checked settings.
        work_dir: the run's folder.
        resume: continue from the folder's newest whole checkpoint.
        reuse: take the folder of a run that ended before its first checkpoint, and so has no logs.

    Raises:
        UserError: if the folder holds a run (or, to resume, none), or a part cannot be built here.
    """

    def __init__(self, cfg: Settings, work_dir: Path, resume: bool = False, reuse: bool = False):
        self.lock = run_folder.Lock(work_dir)
        try:
            self._build(cfg, work_dir, resume, reuse)
        except BaseException:
            self.lock.release()
            raise

    def _build(self, cfg: Settings, work_dir: Path, resume: bool, reuse: bool) -> None:
        if not resume:
            run_folder.refuse_used(work_dir, *[("train.csv", "eval.csv")] if reuse else [])
        device = resolve_device(cfg.device)
        if cfg.num_threads is not None:
            torch.set_num_threads(cfg.num_threads)
        keep_freed_memory()
        precision = set_precision(cfg.precision, device)
        set_seed_everywhere(cfg.seed)
        has_opengl = video.choose_opengl(wants_opengl(cfg))
        import envs  # not before: dm_control reads the choice when it is imported

        films = cfg.save_video and (has_opengl or not envs.needs_opengl(cfg.env))
        if cfg.save_video and not films:
            print(NO_OPENGL)
        note_if_slow(cfg, device)

        make_env = partial(envs.make_env, cfg.env, cfg.seed, cfg.action_repeat)
        self.envs = envs.make_train_envs(make_env, cfg.seed, cfg.num_envs, cfg.async_envs, cfg.env_timeout_s)
        shapes = shapes_of(self.envs.single_observation_space, self.envs.single_action_space)
        self.agent = build_agent(cfg, shapes, device)
        execution, why_eager = choose_execution(cfg.execution, self.agent, device)
        if why_eager:
            print(why_eager)
        set_execution(self.agent, execution, device)
        self.seed_policy = build_seed_policy(cfg, self.agent, shapes, device)
        self.n_step = build_n_step(cfg)
        storage = choose_storage(cfg, shapes, device)
        self.replay_buffer = device_buffer.STORAGES[storage](
            (shapes["obs_dim"],),
            (shapes["action_dim"],),
            cfg.replay_buffer_capacity,
            device,
            cfg.seed,
            cfg.sample_with_replacement,
        )
        if not cfg.log_save_tb:
            cfg.logger["sinks"]["tensorboard"] = None
        if not cfg.log_save_wandb:
            cfg.logger["sinks"]["wandb"] = None
        self.logger = instantiate(cfg.logger, _convert_="all")(log_dir=work_dir)
        self.evaluator = instantiate(cfg.evaluator, _convert_="all")(
            make_env=make_env,
            video_path=(lambda step: work_dir / "video" / f"{step}.mp4") if films else None,
        )

        self.agent.autocast_dtype = torch.bfloat16 if precision == "bf16" else None
        used = dataclasses.asdict(cfg) | {"device": str(device), "num_threads": torch.get_num_threads()}
        used |= {"precision": precision, "execution": execution, "replay_storage": storage}
        used["agent"] = {"name": cfg.agent["name"], **shapes, **used["agent"]}
        if cfg.seed_policy not in ("agent", "uniform"):
            used["seed_policy"] = str(Path(cfg.seed_policy).resolve())

        self.cfg = cfg
        self.device = device
        self.work_dir = work_dir
        self.step = 0  # environment steps
        self.episode = 0  # finished training episodes
        self.episode_reward = np.zeros(cfg.num_envs)  # of the episodes under way
        self.episode_length = np.zeros(cfg.num_envs, int)
        self.episode_started_s = np.zeros(cfg.num_envs)
        self.bursts = 0
        self.updates_made = 0
        # Transitions in the buffer before the first update.
        self.updates_from = max(cfg.min_buffer_size, 1 if cfg.sample_with_replacement else self.agent.batch_size)
        self.eval_due = Every(cfg.eval_frequency)
        self.evaluation_due = False
        self.last_eval_step = 0
        self.last_return = math.nan  # of the newest evaluation
        self.checkpoint_due = Every(cfg.checkpoint_frequency)
        self.stopping = Stopping(cfg.grace_s)
        self.obs: np.ndarray | None = None  # the newest, of a run that continues

        identity = identity_of(cfg, shapes)
        if resume:
            self.checkpoints = run_state.restore(self, identity)
        else:
            self.checkpoints = Checkpoints(work_dir, cfg.keep_checkpoints, identity)
        write_atomically(work_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(used)))
        if not resume:
            self.logger.log_settings(used)

    def run(self) -> float:
        """Trains to the end.

        Returns:
            The mean return of the final evaluation.
        """
        import envs  # not at the top: see __init__

        on_terminal = sys.stderr.isatty()
        bar = tqdm(
            total=self.cfg.num_train_steps, initial=self.step, unit="step", dynamic_ncols=True, disable=not on_terminal
        )
        try:
            with self.stopping:
                self._train(bar)
            self.logger.close()
            run_folder.mark_finished(self.work_dir, self.step, self.last_return)
        except KeyboardInterrupt as interrupt:
            self._end_unfinished_episodes()
            if isinstance(interrupt, Stopped):
                raise
            raise KeyboardInterrupt(f"interrupted at step {self.step}; logs in {self.work_dir}") from None
        except (RunError, OSError, envs.PhysicsError) as error:
            said = " ".join(str(error).split())
            raise RunError(f"{said}; stopped at step {self.step}; {self._where_to_go_on()}") from error
        finally:
            bar.close()
            with contextlib.suppress(OSError):
                self.logger.close()
                if self.cfg.save_figure and self.episode and self.stopping.asked in (None, signal.SIGINT):
                    import plot  # not before: matplotlib takes a second to import

                    plot.draw_run(self.work_dir)
        return self.last_return

    def _where_to_go_on(self) -> str:
        last_step = self.checkpoints.last_step
        if last_step is None:
            return "nothing was saved"
        return f"the last good checkpoint is {self.checkpoints.path(last_step)}"

    def _train(self, bar: tqdm) -> None:
        cfg, agent = self.cfg, self.agent
        obs = self._begin_episodes(np.ones(cfg.num_envs, bool)) if self.obs is None else self.obs  # (num_envs, obs_dim)
        if self.checkpoints.last_step is None:
            run_state.save(self)  # so that there are never logs without one
        while True:
            if self.evaluation_due:
                self._evaluate()
            if self.stopping.asked:
                run_state.save(self)
                self._stop()
            if self.step >= cfg.num_train_steps:
                break
            seeding = self.step < cfg.num_seed_steps
            actions = (self.seed_policy if seeding else agent).act(obs, sample=True)
            # The updates come before the step and do not see its transitions.
            if not seeding and self.replay_buffer.num_added >= self.updates_from:
                self._update()
            require_finite("action", actions)
            next_obs, rewards, terminated, truncated, info = self.envs.step(actions)
            require_finite("observation", next_obs)
            require_finite("reward", rewards)
            done = terminated | truncated
            agent.observe(obs, actions, rewards, next_obs, terminated, truncated)
            for row in self.n_step.rows(obs, actions, rewards, next_obs, done, terminated):
                self.replay_buffer.add(*row)
            obs = next_obs
            steps = int(info["repeats"].sum())
            self.step += steps
            self.episode_reward += rewards
            self.episode_length += info["repeats"]
            bar.update(steps)
            if done.any():
                for index in np.flatnonzero(done):
                    bar.set_postfix_str(self._end_episode(int(index)), refresh=False)
                obs = self._begin_episodes(done)
            self.evaluation_due |= self.eval_due(self.step)
            if self.checkpoint_due(self.step):
                run_state.save(self)  # before the evaluation, which can be made again
        run_state.save(self)  # before the rows that only the end has, so that a longer run can go on from here
        self._end_unfinished_episodes()
        if self.last_eval_step != self.step:
            self._evaluate()
            if self.last_eval_step != self.step:
                self._stop()

    def _stop(self) -> None:
        assert self.stopping.asked is not None
        if self.stopping.asked == signal.SIGINT:
            message = f"interrupted at step {self.step}; logs in {self.work_dir}"
        else:
            message = f"{signal.Signals(self.stopping.asked).name} at step {self.step}"
        if self.cfg.checkpoint_frequency:
            message += f"; continue with: python train.py resume={self.work_dir}"
        self.stopping.end(message)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the run continues from but the agent and the buffer's rows."""
        return run_state.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned, in a new Workspace of the same settings."""
        run_state.load_state_dict(self, state)

    def _update(self) -> None:
        """A burst, every `update_every` transitions: `updates_per_step` for each; of a fraction, what has added up."""
        every, added = self.cfg.update_every, self.replay_buffer.num_added + self.n_step.num_pending
        self.bursts += added // every - (added - self.cfg.num_envs) // every
        due = math.floor(self.bursts * every * self.cfg.updates_per_step + 1e-9)
        for _ in range(due - self.updates_made):
            self.agent.update(self.replay_buffer, self.logger, self.step)
        self.updates_made = due

    def _begin_episodes(self, which: np.ndarray) -> np.ndarray:
        """Resets the environments in the mask `which`; returns everyone's newest observation."""
        self.agent.reset()
        self.episode_reward[which] = 0.0
        self.episode_length[which] = 0
        self.episode_started_s[which] = time.perf_counter()
        obs = self.envs.reset(options={"reset_mask": which})[0]
        require_finite("observation", obs)
        return obs

    def _end_unfinished_episodes(self) -> None:
        """The rows of the episodes that a run's end cuts short."""
        for index in np.flatnonzero(self.episode_length):
            self._end_episode(int(index))
            self.episode_length[index] = 0

    def _end_episode(self, index: int) -> str:
        """Dumps the row of one environment's episode; returns what the progress bar says of it."""
        self.episode += 1
        reward, length = float(self.episode_reward[index]), int(self.episode_length[index])
        duration_s = time.perf_counter() - self.episode_started_s[index]
        self.logger.log("train/episode", self.episode, self.step)
        self.logger.log("train/episode_reward", reward, self.step)
        self.logger.log("train/episode_length", length, self.step)
        self.logger.log("train/duration", duration_s, self.step)
        self.logger.log("train/steps_per_second", length / duration_s, self.step)
        row = self.logger.dump(self.step, ty="train")
        run_state.require_finite_losses(row)
        said = f"episode {self.episode}, {length} steps, return {reward:.1f}"
        if "train_actor/loss" in row:
            said += f", actor loss {row['train_actor/loss']:.2f}, alpha {row['train_alpha/value']:.3f}"
        return said if math.isnan(self.last_return) else f"{said}, evaluated at {self.last_return:.1f}"

    def _evaluate(self) -> None:
        """One evaluation; a signal cuts it short and leaves it due."""
        started_s = time.perf_counter()
        evaluation = self.stopping.cuttable(lambda: self.evaluator.evaluate(self.agent, self.step))
        if evaluation is None:
            return
        returns, lengths = dataclasses.astuple(evaluation)
        self.evaluation_due = False
        self.last_eval_step = self.step
        self.last_return = float(np.mean(returns))
        for key, value in {
            "eval/episode": self.episode,
            "eval/episode_reward": self.last_return,
            "eval/episode_reward_std": float(np.std(returns)),
            "eval/episode_reward_min": min(returns),
            "eval/episode_reward_max": max(returns),
            "eval/episode_length": float(np.mean(lengths)),
            "eval/duration": time.perf_counter() - started_s,
        }.items():
            self.logger.log(key, value, self.step)
        self.logger.dump(self.step, ty="eval")
        self.episode_started_s += time.perf_counter() - started_s  # not part of the training episode

    def close(self) -> None:
        """Closes the environments and lets others into the folder."""
        self.envs.close()
        self.evaluator.close()
        self.lock.release()


def _run(cfg: Settings, folder: Path, **how: bool) -> float:
    """A run from its start, or its newest checkpoint, to its end; returns the mean return of the final evaluation."""
    workspace = Workspace(cfg, folder, **how)
    try:
        return workspace.run()
    finally:
        workspace.close()


def train(config: DictConfig) -> float:
    """Hydra's job; returns the mean return of the final evaluation."""
    return job.run(config, _run)


def continue_run(folder: Path, overrides: list[str], config_name: str | None = None) -> float:
    """Continues the run in a folder (see job.continue_run)."""
    return job.continue_run(folder, overrides, config_name, _run)


main = hydra.main(version_base="1.3", config_path=str(cli.CONFIG_DIR), config_name="train")(train)


def command() -> int:
    """What the command line asks for; returns the exit code."""
    return cli.run(main, check_machine, continue_run)


if __name__ == "__main__":
    import train as by_its_name  # under which a worker of a sweep, elsewhere, can import what it is to do

    sys.exit(by_its_name.command())
