"""Shows a policy live: the suite's tasks in MuJoCo's viewer, any other environment in its own window."""

import threading
import time
from collections.abc import Iterator
from itertools import count, islice

import glfw
from mujoco import mjtCamera, viewer

from envs.episodes import EVAL_STREAM, episode_seed
from run.environments import make_env_factory
from run.evaluation.evaluator import evaluating
from run.run_policy import RunPolicy
from utils import UserError
from video import seconds_per_step


def watch(policy: RunPolicy, num_episodes: int | None, seed: int, sample: bool) -> Iterator[tuple[float, int]]:
    """Shows an evaluation's episodes at real speed until the window is closed; yields each one's return and length."""
    glfw.ERROR_REPORTING = "ignore"  # the next line reports it
    if not glfw.init():
        raise UserError("--view: no display can be opened here; --video out.mp4 films instead")
    env, window, others = policy.make_env(False), None, set(threading.enumerate())
    if hasattr(base := env.unwrapped, "_env"):  # a task of dm_control
        window = viewer.launch_passive(base._env.physics.model.ptr, base._env.physics.data.ptr)
        window.cam.type, window.cam.fixedcamid = mjtCamera.mjCAMERA_FIXED, base.render_kwargs["camera_id"]
    else:
        env = make_env_factory(policy.cfg, "evaluation", human=True)(True)
    try:
        with evaluating(policy.actor):
            for episode in islice(count(), num_episodes):
                obs, _ = env.reset(seed=episode_seed(seed, EVAL_STREAM, policy.step, episode))
                value, length, ended = 0.0, 0, False
                while not ended:
                    if window is not None and not window.is_running():
                        return
                    due_s = time.perf_counter() + seconds_per_step(env, policy.cfg.action_repeat)
                    obs, reward, terminated, truncated, info = env.step(policy.actor.act(obs[None], sample=sample)[0])
                    value, length, ended = value + float(reward), length + info["repeats"], terminated or truncated
                    if window is not None:
                        window.sync()
                    time.sleep(max(0.0, due_s - time.perf_counter()))
                yield value, length
    finally:
        if window is not None:
            window.close()
            for thread in set(threading.enumerate()) - others:  # they would crash a process that ends before them
                thread.join()
        env.close()
