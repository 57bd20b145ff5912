"""Runs an exported policy (export.py) without torch: numpy, onnxruntime, and the environment's own package.

    python examples/deploy.py exp/<day>/<run>/export/policy.onnx --episodes 10

It acts at the control rate of the task, as on a robot; `--fast` does not wait. It imports nothing of this project: copy
it and connect your robot.
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


def make_env(name: str, kwargs: dict[str, Any], keys: list[str]) -> Any:
    """Makes a Gymnasium environment, or a task of the DeepMind Control Suite."""
    if "-v" in name or ":" in name:
        env = gym.make(name, **kwargs)
        return env if env.spec and env.spec.max_episode_steps else gym.wrappers.TimeLimit(env, 1000)
    from dm_control import suite
    from shimmy.dm_control_compatibility import DmControlCompatibilityV0

    domain, task = {f"{domain}_{task}": (domain, task) for domain, task in suite.ALL_TASKS}[name]
    task_kwargs = {key: value for key, value in kwargs.items() if key not in OF_SUITE}
    env_kwargs = {"flat_observation": keys == [""]} | {key: kwargs[key] for key in OF_SUITE if key in kwargs}
    return DmControlCompatibilityV0(suite.load(domain, task, task_kwargs, env_kwargs))


def get_part(space: Any, obs: Any, key: str) -> np.ndarray:
    """Returns the part of an observation with this dotted key: an image (channels, height, width), or a vector."""
    for name in filter(None, key.split(".")):
        index = int(name) if isinstance(space, gym.spaces.Tuple) else name
        space, obs = space[index], obs[index]
    if space.dtype != np.uint8 or len(space.shape) < 2:
        return np.asarray(gym.spaces.flatten(space, obs), np.float32)
    channels_last = obs.ndim == 3 and obs.shape[2] in (1, 3, 4) and obs.shape[2] < obs.shape[0]
    return obs[None] if obs.ndim == 2 else obs.transpose(2, 0, 1) if channels_last else obs


def make_inputs(inputs: list[dict[str, Any]], space: Any, newest: deque[Any]) -> dict[str, np.ndarray]:
    """Returns the policy's inputs, oldest first: channels frame by frame, a number's values side by side."""
    arrays = {}
    for each in inputs:
        frames = [np.concatenate([get_part(space, obs, key) for key in each["keys"]]) for obs in newest]
        array = np.concatenate(frames) if frames[0].ndim == 3 else np.stack(frames, axis=1).ravel()
        arrays[each["name"]] = array[None]
    return arrays


def run_episode(about: dict[str, Any], session: Any, env: Any, seed: int, waits: bool, calls_ms: list[float]) -> float:
    """Runs one episode; prints and returns its return. Adds the duration of each call of the policy to `calls_ms`."""
    inputs, dtype, num_frames = about["inputs"], np.dtype(about["action_dtype"]), about["inputs"][0]["frame_stack"]
    newest = deque([env.reset(seed=seed)[0]] * num_frames, num_frames)
    total, done, due_s = 0.0, False, time.perf_counter()
    while not done:
        began_s = time.perf_counter()
        action = session.run(None, make_inputs(inputs, env.observation_space, newest))[0][0]
        calls_ms.append(1000 * (time.perf_counter() - began_s))
        action = (np.rint(action) if dtype.kind in "iu" else action).astype(dtype)
        for _ in range(about["action_repeat"]):
            obs, reward, terminated, truncated, _ = env.step(action)
            total, done = total + reward, terminated or truncated
            if done:
                break
        newest.append(obs)
        due_s += about["action_repeat"] / about["control_rate_hz"]
        time.sleep(max(0.0, due_s - time.perf_counter()) if waits else 0.0)
    print(f"return {total:.4f}", flush=True)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="an .onnx file of export.py's")
    parser.add_argument("--episodes", type=int, default=1, help="number of episodes, whose seeds are 0, 1, ...")
    parser.add_argument("--fast", action="store_true", help="do not wait for the task's rate")
    parser.add_argument("--env", help="a task of your own, my_package:MyEnv-v0, which imports my_package")
    args = parser.parse_args()
    about = json.loads(args.path.with_name(f"{args.path.name}.json").read_text(encoding="utf-8"))
    if ":" in about["task"] and args.env is None:
        parser.error(f"{about['task']} would import a package; if it is yours, add --env {about['task']}")
    if about["env_wrappers"]:
        print(f"{about['task']}: trained with {about['env_wrappers']}, which this example does not know")
    env = make_env(args.env or about["task"], about["env_kwargs"], [key for i in about["inputs"] for key in i["keys"]])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # enough for one observation
    session = onnxruntime.InferenceSession(args.path, options, providers=["CPUExecutionProvider"])
    calls_ms: list[float] = []
    returns = [run_episode(about, session, env, seed, not args.fast, calls_ms) for seed in range(args.episodes)]
    print(f"mean {np.mean(returns):.4f} over {len(returns)} episodes; a call takes {np.median(calls_ms):.3f} ms")


if __name__ == "__main__":
    main()
