"""Trains an agent: `python train.py env=cheetah_run`."""

import dataclasses
import math
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import hydra
import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

import cli
import plot
import replay_buffer
import settings
import video
from agent.policy import UniformPolicy
from settings import Settings
from utils import Every, UserError, resolve_device, set_seed_everywhere, write_atomically

NO_OPENGL = "No videos: no OpenGL was found here. Install libosmesa6 (apt), or a GPU driver with EGL, to get them."
PRODUCTS_PER_UPDATE = 16  # of (batch, width) by (width, width): see docs/PERFORMANCE.md

Shapes = dict[str, Any]  # what an agent's constructor is told of its environment


class Workspace:
    """One run: builds the parts, and steps environment and agent until `num_train_steps`.

    Args:
        cfg: the checked settings.
        work_dir: the run's folder.

    Raises:
        UserError: if the folder holds a run, or a part cannot be built here.
    """

    def __init__(self, cfg: Settings, work_dir: Path):
        cli.refuse_used(work_dir)
        device = resolve_device(cfg.device)
        if cfg.num_threads is not None:
            torch.set_num_threads(cfg.num_threads)
        set_seed_everywhere(cfg.seed)
        has_opengl = video.choose_opengl(_wants_opengl(cfg))
        import envs  # not before: dm_control reads the choice when it is imported

        films = cfg.save_video and (has_opengl or not envs.needs_opengl(cfg.env))
        if cfg.save_video and not films:
            print(NO_OPENGL)
        _note_if_slow(cfg, device)

        def make_env(render: bool) -> Any:
            return envs.make_env(cfg.env, cfg.seed, cfg.action_repeat, render)

        self.env = envs.SeededEpisodes(make_env(False), cfg.seed)
        shapes = shapes_of(self.env)
        self.agent = build_agent(cfg, shapes, device)
        self.seed_policy = self._build_seed_policy(cfg, shapes)
        self.replay_buffer = replay_buffer.ReplayBuffer(
            (shapes["obs_dim"],),
            (shapes["action_dim"],),
            cfg.replay_buffer_capacity,
            device,
            cfg.seed,
            cfg.sample_with_replacement,
        )
        if not cfg.log_save_tb:
            cfg.logger["sinks"]["tensorboard"] = None
        self.logger = instantiate(cfg.logger, _convert_="all")(log_dir=work_dir)
        self.evaluator = instantiate(cfg.evaluator, _convert_="all")(
            make_env=make_env,
            video_path=(lambda step: work_dir / "video" / f"{step}.mp4") if films else None,
            seconds_per_step=envs.seconds_per_step(self.env, cfg.action_repeat),
        )

        used = dataclasses.asdict(cfg) | {"device": str(device), "num_threads": torch.get_num_threads()}
        used["agent"] = {"name": cfg.agent["name"], **shapes, **used["agent"]}
        write_atomically(work_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(used)))

        self.cfg = cfg
        self.work_dir = work_dir
        self.step = 0  # environment steps
        self.episode = 0  # finished training episodes
        self.episode_reward = 0.0
        self.episode_length = 0
        self.updates_due = 0.0
        self.eval_due = Every(cfg.eval_frequency)
        self.last_return = math.nan  # of the newest evaluation
        self.episode_started_s = 0.0

    def _build_seed_policy(self, cfg: Settings, shapes: Shapes) -> Any:
        if cfg.seed_policy == "agent":
            return self.agent
        if cfg.seed_policy == "uniform":
            return UniformPolicy(shapes["action_dim"], shapes["action_range"], cfg.seed)
        return instantiate(cfg.seed_policy, _convert_="all")

    def run(self) -> float:
        """Trains to the end.

        Returns:
            The mean return of the final evaluation.
        """
        bar = tqdm(total=self.cfg.num_train_steps, unit="step", dynamic_ncols=True, disable=not sys.stderr.isatty())
        try:
            self._train(bar)
        except KeyboardInterrupt:
            self._end_episode(finished=False)
            raise KeyboardInterrupt(f"interrupted at step {self.step}; logs in {self.work_dir}") from None
        finally:
            bar.close()
            self.logger.close()
            if self.cfg.save_figure and self.episode:
                plot.draw_run(self.work_dir)
        return self.last_return

    def _train(self, bar: tqdm) -> None:
        cfg, agent = self.cfg, self.agent
        enough = max(cfg.min_buffer_size, 1 if cfg.sample_with_replacement else agent.batch_size)
        obs = self._begin_episode()
        while self.step < cfg.num_train_steps:
            seeding = self.step < cfg.num_seed_steps
            action = (self.seed_policy if seeding else agent).act(obs, sample=True)
            # The updates come before the step and do not see its transition.
            if not seeding and len(self.replay_buffer) >= enough:
                self._update()

            next_obs, reward, terminated, truncated, info = self.env.step(action)
            done = terminated or truncated
            self.replay_buffer.add(obs, action, float(reward), next_obs, done, terminated)
            obs = next_obs
            self.step += info["repeats"]
            self.episode_reward += float(reward)
            self.episode_length += info["repeats"]
            bar.update(info["repeats"])
            if done:
                bar.set_postfix_str(f"return {self.episode_reward:.1f}, eval {self.last_return:.1f}")
                self._end_episode(finished=True)
                obs = self._begin_episode()
            if self.eval_due(self.step):
                self._evaluate()
        self._end_episode(finished=False)
        if self.step % cfg.eval_frequency:
            self._evaluate()

    def _update(self) -> None:
        """The updates that this transition brings, once `update_every` of them have come together."""
        self.updates_due += self.cfg.updates_per_step
        if self.replay_buffer.num_added % self.cfg.update_every == 0:
            while self.updates_due >= 1:
                self.agent.update(self.replay_buffer, self.logger, self.step)
                self.updates_due -= 1

    def _begin_episode(self) -> np.ndarray:
        self.agent.reset()
        self.episode_reward = 0.0
        self.episode_length = 0
        self.episode_started_s = time.perf_counter()
        return self.env.reset()[0]

    def _end_episode(self, finished: bool) -> None:
        """Dumps the episode's row; an unfinished one, at the end of a run, if it took any step."""
        if not self.episode_length:
            return
        self.episode += 1
        duration_s = time.perf_counter() - self.episode_started_s
        self.logger.log("train/episode", self.episode, self.step)
        self.logger.log("train/episode_reward", self.episode_reward, self.step)
        self.logger.log("train/episode_length", self.episode_length, self.step)
        self.logger.log("train/duration", duration_s, self.step)
        self.logger.log("train/steps_per_second", self.episode_length / duration_s, self.step)
        self.logger.dump(self.step, ty="train")
        if not finished:
            self.episode_length = 0

    def _evaluate(self) -> None:
        started_s = time.perf_counter()
        returns, lengths = dataclasses.astuple(self.evaluator.evaluate(self.agent, self.step))
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
        """Closes the environments."""
        self.env.close()
        self.evaluator.close()


def shapes_of(env: gym.Env) -> Shapes:
    """What an agent's constructor is told of a flat environment."""
    (obs_dim,), (action_dim,) = env.observation_space.shape or (), env.action_space.shape or ()
    return {"obs_dim": obs_dim, "action_dim": action_dim, "action_range": [-1.0, 1.0]}


def build_agent(cfg: Settings, shapes: Shapes, device: torch.device) -> Any:
    """The agent that `cfg.agent` describes."""
    node = {key: value for key, value in cfg.agent.items() if key != "name"}
    return instantiate(node, _convert_="all")(**shapes, device=device)


def _wants_opengl(cfg: Settings) -> bool:
    return cfg.save_video or cfg.env == "quadruped_escape"  # which renders its terrain while it is built


def _note_if_slow(cfg: Settings, device: torch.device) -> None:
    """Says what to expect where a CPU is given a GPU's work, from the rate of the products that dominate an update."""
    batch_size, width = cfg.agent.get("batch_size", 0), cfg.agent.get("critic", {}).get("hidden_dim", 0)
    if device.type != "cpu" or batch_size * width**2 < 2**27:
        return
    x, weight = torch.zeros(batch_size, width), torch.zeros(width, width)
    torch.mm(x, weight)
    started_s = time.perf_counter()
    torch.mm(x, weight)
    steps_per_second = 1 / ((time.perf_counter() - started_s) * PRODUCTS_PER_UPDATE * cfg.updates_per_step)
    print(
        f"This agent is made for a GPU: expect about {steps_per_second:.1f} steps per second on this CPU. "
        "preset=cpu learns in minutes."
    )


def check_machine(runs: list[Settings]) -> None:
    """Builds what can be wrong about the runs on this machine, and throws it away.

    Raises:
        UserError: for a device, a task or a buffer that cannot be had here.
    """
    for cfg in runs:
        resolve_device(cfg.device)
    video.choose_opengl(any(_wants_opengl(cfg) for cfg in runs))
    import envs  # not before: dm_control reads the choice when it is imported

    for cfg in runs:
        env = envs.make_env(cfg.env, cfg.seed, cfg.action_repeat)
        shapes = shapes_of(env)
        env.close()
        replay_buffer.require_memory((shapes["obs_dim"],), (shapes["action_dim"],), cfg.replay_buffer_capacity)
        if not cfg.sample_with_replacement and cfg.agent["batch_size"] > cfg.replay_buffer_capacity:
            raise UserError(
                f"replay_buffer_capacity={cfg.replay_buffer_capacity}: "
                f"at least agent.batch_size={cfg.agent['batch_size']} is needed without replacement"
            )
        build_agent(cfg, shapes, torch.device("cpu"))


@hydra.main(version_base="1.3", config_path="config", config_name="train")
def train(config: DictConfig) -> float:
    """Hydra's job: one run in the folder that Hydra made."""
    cfg = settings.check(cli.plain(config))
    workspace = Workspace(cfg, Path(HydraConfig.get().runtime.output_dir))
    try:
        return workspace.run()
    finally:
        workspace.close()


if __name__ == "__main__":
    sys.exit(cli.run(train, check_machine))
