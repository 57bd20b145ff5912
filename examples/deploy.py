"""Runs an exported policy (export.py) without torch: numpy, onnxruntime, and the environment's own package.

    python examples/deploy.py exp/<day>/<run>/export/policy.onnx --episodes 10

It acts at the control rate of the task, as on a robot; `--fast` does not wait. It prints the return of each episode and
the duration of a call of the policy. It imports nothing of this project: copy it and connect your robot.
"""

import argparse
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime sends usage data by default
os.environ.setdefault("MUJOCO_GL", "disabled")  # nothing is drawn
import onnxruntime

OF_SUITE = ("control_timestep", "n_sub_steps", "legacy_step")  # arguments of dm_control's environment, not of its task


class SuiteTask:
    """A task of the DeepMind Control Suite, with the methods of a Gymnasium environment that are used here."""

    observation_space = None

    def __init__(self, name: str, seed: int, env_kwargs: dict[str, Any], keys: list[str]):
        from dm_control import suite

        domain, task = {f"{domain}_{task}": (domain, task) for domain, task in suite.ALL_TASKS}[name]
        task_kwargs = {"random": seed} | {key: value for key, value in env_kwargs.items() if key not in OF_SUITE}
        kwargs = {"flat_observation": "" in keys} | {key: env_kwargs[key] for key in OF_SUITE if key in env_kwargs}
        self._env = suite.load(domain, task, task_kwargs, kwargs)

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        return self._env.reset().observation, {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = self._env.step(action)
        return step.observation, float(step.reward), False, step.last(), {}


def make_env(name: str, seed: int, env_kwargs: dict[str, Any], keys: list[str]) -> Any:
    if "-v" not in name and ":" not in name:
        return SuiteTask(name, seed, env_kwargs, keys)
    env = gym.make(name, **env_kwargs)
    return env if env.spec and env.spec.max_episode_steps else gym.wrappers.TimeLimit(env, 1000)


def get_part(space: Any, obs: Any, key: str) -> np.ndarray:
    """Returns the part of an observation with this dotted key: an image (channels, height, width), or a vector."""
    if space is None:  # of the suite
        return np.ravel(obs[key or "observations"]).astype(np.float32)
    for name in filter(None, key.split(".")):
        index = int(name) if isinstance(space, gym.spaces.Tuple) else name
        space, obs = space[index], obs[index]
    if space.dtype != np.uint8 or len(space.shape) < 2:
        return np.asarray(gym.spaces.flatten(space, obs), np.float32)
    channels_last = obs.ndim == 3 and obs.shape[2] in (1, 3, 4) and obs.shape[2] < obs.shape[0]
    return obs[None] if obs.ndim == 2 else obs.transpose(2, 0, 1) if channels_last else obs


def make_frame(inputs: list[dict[str, Any]], space: Any, obs: Any) -> list[np.ndarray]:
    """Returns the part of an observation that belongs to each input: `keys` of the environment's dictionary."""
    return [np.concatenate([get_part(space, obs, key) for key in each.get("keys", [""])]) for each in inputs]


def stack_frames(inputs: list[dict[str, Any]], frames: deque[list[np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns the policy's inputs, oldest frame first: channels frame by frame, the values of a number side by side."""
    stacks = zip(*frames, strict=True)
    arrays = [np.concatenate(parts) if parts[0].ndim == 3 else np.stack(parts, axis=1).ravel() for parts in stacks]
    return {each["name"]: array[None] for each, array in zip(inputs, arrays, strict=True)}


def run_episode(about: dict[str, Any], session: Any, env: Any, seed: int, waits: bool) -> tuple[float, list[float]]:
    """Runs one episode and prints its return. Returns it, and the duration of each call of the policy in ms."""
    inputs, dtype = about.get("inputs", [about["input"]]), np.dtype(about["action_dtype"])
    num_frames, space = inputs[0].get("frame_stack", 1), env.observation_space
    frames = deque([make_frame(inputs, space, env.reset(seed=seed)[0])] * num_frames, num_frames)
    total, done, calls_ms, due_s = 0.0, False, [], time.perf_counter()
    while not done:
        began_s = time.perf_counter()
        action = session.run(None, stack_frames(inputs, frames))[0][0]
        calls_ms.append(1000 * (time.perf_counter() - began_s))
        action = (np.rint(action) if dtype.kind in "iu" else action).astype(dtype)
        for _ in range(about["action_repeat"]):
            obs, reward, terminated, truncated, _ = env.step(action)
            total, done = total + reward, terminated or truncated
            if done:
                break
        frames.append(make_frame(inputs, space, obs))
        due_s += about["action_repeat"] / about["control_rate_hz"]
        time.sleep(max(0.0, due_s - time.perf_counter()) if waits else 0.0)
    print(f"return {total:.4f}", flush=True)
    return total, calls_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="an .onnx file of export.py's")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fast", action="store_true", help="do not wait for the task's rate")
    parser.add_argument("--env", help="a task of your own, my_package:MyEnv-v0, which imports my_package")
    args = parser.parse_args()
    about = json.loads(args.path.with_name(f"{args.path.name}.json").read_text(encoding="utf-8"))
    name = args.env or about["task"]
    if ":" in name and args.env is None:
        parser.error(f"{name} would import a package; if it is yours, add --env {name}")
    if about["env_wrappers"]:
        print(f"{name}: trained with {about['env_wrappers']}, which this example does not know")
    keys = [key for each in about.get("inputs", [about["input"]]) for key in each.get("keys", [""])]
    env = make_env(name, args.seed, about["env_kwargs"], keys)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # enough for one observation
    session = onnxruntime.InferenceSession(args.path, options, providers=["CPUExecutionProvider"])
    episodes = [run_episode(about, session, env, args.seed + number, not args.fast) for number in range(args.episodes)]
    returns, calls_ms = [total for total, _ in episodes], [ms for _, of_episode in episodes for ms in of_episode]
    print(f"mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    if about["return"]:
        print(f"at its export, after {about['return']['step']} steps of training: mean {about['return']['mean']:.4f}")
    print(f"a call: median {np.median(calls_ms):.3f} ms, longest {max(calls_ms):.3f} ms of {len(calls_ms)}")


if __name__ == "__main__":
    main()
