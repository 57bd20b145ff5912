"""Trains an agent: `python train.py env=cheetah_run`."""

import dataclasses
import math
import sys
import time
from functools import partial
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
import device_buffer
import replay_buffer
import settings
import video
from agent.execution import choose_execution, set_execution
from agent.policy import UniformPolicy, load_policy
from settings import Settings
from utils import Every, UserError, resolve_device, set_seed_everywhere, write_atomically

NO_OPENGL = "No videos: no OpenGL was found here. Install libosmesa6 (apt), or a GPU driver with EGL, to get them."
# Of (batch, width) by (width, width): target actor 1, target critics 2, critics 2 forward and 4 backward, then for the
# actor 1 forward and 2 backward through itself, 2 and 2 through the critics.
PRODUCTS_PER_UPDATE = 16

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

        make_env = partial(envs.make_env, cfg.env, cfg.seed, cfg.action_repeat)
        self.envs = envs.make_train_envs(make_env, cfg.seed, cfg.num_envs, cfg.async_envs)
        shapes = shapes_of(self.envs.single_observation_space, self.envs.single_action_space)
        self.agent = build_agent(cfg, shapes, device)
        execution, why_eager = choose_execution(cfg.execution, self.agent, device)
        if why_eager:
            print(why_eager)
        set_execution(self.agent, execution, device)
        self.seed_policy = build_seed_policy(cfg, self.agent, shapes, device)
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
        self.logger = instantiate(cfg.logger, _convert_="all")(log_dir=work_dir)
        self.evaluator = instantiate(cfg.evaluator, _convert_="all")(
            make_env=make_env,
            video_path=(lambda step: work_dir / "video" / f"{step}.mp4") if films else None,
        )

        used = dataclasses.asdict(cfg) | {"device": str(device), "num_threads": torch.get_num_threads()}
        used |= {"execution": execution, "replay_storage": storage}
        used["agent"] = {"name": cfg.agent["name"], **shapes, **used["agent"]}
        write_atomically(work_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(used)))

        self.cfg = cfg
        self.work_dir = work_dir
        self.step = 0  # environment steps
        self.episode = 0  # finished training episodes
        self.episode_reward = np.zeros(cfg.num_envs)  # of the episodes under way
        self.episode_length = np.zeros(cfg.num_envs, int)
        self.episode_started_s = np.zeros(cfg.num_envs)
        self.bursts = 0
        self.updates_made = 0
        self.eval_due = Every(cfg.eval_frequency)
        self.last_eval_step = 0
        self.last_return = math.nan  # of the newest evaluation

    def run(self) -> float:
        """Trains to the end.

        Returns:
            The mean return of the final evaluation.
        """
        bar = tqdm(total=self.cfg.num_train_steps, unit="step", dynamic_ncols=True, disable=not sys.stderr.isatty())
        try:
            self._train(bar)
        except KeyboardInterrupt:
            self._end_unfinished_episodes()
            raise KeyboardInterrupt(f"interrupted at step {self.step}; logs in {self.work_dir}") from None
        finally:
            bar.close()
            self.logger.close()
            if self.cfg.save_figure and self.episode:
                import plot  # not before: matplotlib takes a second to import

                plot.draw_run(self.work_dir)
        return self.last_return

    def _train(self, bar: tqdm) -> None:
        cfg, agent = self.cfg, self.agent
        enough = max(cfg.min_buffer_size, 1 if cfg.sample_with_replacement else agent.batch_size)  # ever stored
        obs = self._begin_episodes(np.ones(cfg.num_envs, bool))  # (num_envs, obs_dim)
        while self.step < cfg.num_train_steps:
            seeding = self.step < cfg.num_seed_steps
            actions = (self.seed_policy if seeding else agent).act(obs, sample=True)
            # The updates come before the step and do not see its transitions.
            if not seeding and self.replay_buffer.num_added >= enough:
                self._update()
            next_obs, rewards, terminated, truncated, info = self.envs.step(actions)
            done = terminated | truncated
            for row in zip(obs, actions, rewards, next_obs, done, terminated, strict=True):
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
            if self.eval_due(self.step):
                self._evaluate()
        self._end_unfinished_episodes()
        if self.last_eval_step != self.step:
            self._evaluate()

    def _update(self) -> None:
        """A burst, every `update_every` transitions: `updates_per_step` for each; of a fraction, what has added up."""
        every, added = self.cfg.update_every, self.replay_buffer.num_added
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
        return self.envs.reset(options={"reset_mask": which})[0]

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
        said = f"episode {self.episode}, {length} steps, return {reward:.1f}"
        if "train_actor/loss" in row:
            said += f", actor loss {row['train_actor/loss']:.2f}, alpha {row['train_alpha/value']:.3f}"
        return said if math.isnan(self.last_return) else f"{said}, evaluated at {self.last_return:.1f}"

    def _evaluate(self) -> None:
        started_s = time.perf_counter()
        returns, lengths = dataclasses.astuple(self.evaluator.evaluate(self.agent, self.step))
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
        """Closes the environments."""
        self.envs.close()
        self.evaluator.close()


def shapes_of(observation_space: gym.Space, action_space: gym.Space) -> Shapes:
    """What an agent's constructor is told of a flat environment."""
    (obs_dim,), (action_dim,) = observation_space.shape or (), action_space.shape or ()
    return {"obs_dim": obs_dim, "action_dim": action_dim, "action_range": [-1.0, 1.0]}


def build_agent(cfg: Settings, shapes: Shapes, device: torch.device) -> Any:
    """The agent that `cfg.agent` describes."""
    node = {key: value for key, value in cfg.agent.items() if key != "name"}
    return instantiate(node, _convert_="all")(**shapes, device=device)


def choose_storage(cfg: Settings, shapes: Shapes, device: torch.device) -> str:
    """What `replay_storage` means for this run."""
    sizes = (shapes["obs_dim"],), (shapes["action_dim"],), cfg.replay_buffer_capacity
    return device_buffer.choose_storage(cfg.replay_storage, device, cfg.sample_with_replacement, *sizes)


def build_seed_policy(cfg: Settings, agent: Any, shapes: Shapes, device: torch.device) -> Any:
    """Who acts for the first `num_seed_steps`: `uniform`, the `agent`, or the policy saved in a file of that name.

    Raises:
        UserError: for a file that holds no policy of these shapes.
    """
    if cfg.seed_policy == "agent":
        return agent
    if cfg.seed_policy == "uniform":
        return UniformPolicy(shapes["action_dim"], shapes["action_range"], cfg.seed)
    policy = load_policy(cfg.seed_policy, str(device), cfg.seed)
    try:
        fits = policy.act(np.zeros(shapes["obs_dim"], np.float32)).shape == (shapes["action_dim"],)
    except RuntimeError:  # the observation's width
        fits = False
    if not fits:
        raise UserError(f"seed_policy={cfg.seed_policy}: saved for an environment of other shapes than {cfg.env}")
    return policy


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
        shapes = shapes_of(env.observation_space, env.action_space)
        env.close()
        replay_buffer.require_memory((shapes["obs_dim"],), (shapes["action_dim"],), cfg.replay_buffer_capacity)
        agent = build_agent(cfg, shapes, torch.device("cpu"))
        device = resolve_device(cfg.device)
        choose_execution(cfg.execution, agent, device)
        if cfg.replay_storage != "auto":  # which always finds something, and would start a GPU here to look
            choose_storage(cfg, shapes, device)
        if not cfg.sample_with_replacement and agent.batch_size > cfg.replay_buffer_capacity:
            raise UserError(
                f"replay_buffer_capacity={cfg.replay_buffer_capacity}: "
                f"at least agent.batch_size={agent.batch_size} is needed without replacement"
            )
        build_seed_policy(cfg, agent, shapes, torch.device("cpu"))


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
