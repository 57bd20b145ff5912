"""Runs an exported policy (export.py) without torch: numpy, onnxruntime, and the environment's own package.

    python examples/deploy.py exp/<day>/<run>/export/policy.onnx --episodes 10

It acts at the control rate of the task, as on a robot; `--fast` does not wait. It prints the return of each episode and
the duration of a call of the policy. It imports nothing of this project: copy it and connect your robot.
"""

import argparse
import hashlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime sends usage data by default
import onnxruntime

FORMAT = "policy-export-1"
EPISODE_STEPS = 1000  # for tasks without a limit of their own
MOST_NUMBERS = 2**22  # in an observation
MOST_JSON_BYTES, MOST_GRAPH_BYTES = 2**20, 2**31


class RefusedError(Exception):
    """Ends the program with one line."""


class SuiteTask:
    """A task of the DeepMind Control Suite."""

    limit = EPISODE_STEPS

    def __init__(self, domain: str, task: str, seed: int):
        from dm_control import suite

        settings = {"task_kwargs": {"random": seed}, "environment_kwargs": {"flat_observation": True}}
        self._env = suite.load(domain, task, **settings)

    def reset(self) -> np.ndarray:
        return self._flat(self._env.reset())

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        step = self._env.step(action)
        return self._flat(step), float(step.reward or 0.0), step.last()

    @staticmethod
    def _flat(step: Any) -> np.ndarray:
        return step.observation["observations"].astype(np.float32)


class GymnasiumTask:
    """An environment that is registered with Gymnasium."""

    def __init__(self, name: str, seed: int):
        import gymnasium as gym

        self._gym, self._seed = gym, seed
        self._env = gym.make(name)
        self.limit = self._env.spec.max_episode_steps or EPISODE_STEPS

    def reset(self) -> np.ndarray:
        obs, _ = self._env.reset(seed=self._seed)
        self._seed += 1
        return self._flat(obs)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        obs, reward, terminated, truncated, _ = self._env.step(action)
        return self._flat(obs), float(reward), terminated or truncated

    def _flat(self, obs: Any) -> np.ndarray:
        return np.asarray(self._gym.spaces.flatten(self._env.observation_space, obs), np.float32)


def task(name: str, seed: int) -> Any:
    os.environ.setdefault("MUJOCO_GL", "disabled")  # nothing is drawn
    try:
        from dm_control import suite

        for domain, task_name in suite.ALL_TASKS:
            if name == f"{domain}_{task_name}":
                return SuiteTask(domain, task_name, seed)
    except ImportError:
        pass  # then only Gymnasium's tasks can be made
    try:
        return GymnasiumTask(name, seed)
    except Exception as error:  # any exception of Gymnasium or the environment
        raise RefusedError(f"{name}: no such task here ({one_line(error)})") from None


def contents(path: Path, most_bytes: int) -> bytes:
    """Reads a file, but no link to one elsewhere, no pipe, which could wait forever, and nothing vast."""
    if path.is_symlink() or not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    if path.stat().st_size > most_bytes:
        raise OSError(27, f"more than {most_bytes:,} bytes", str(path))
    return path.read_bytes()


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; raises OverflowError for an integer that is too large for a float."""
    return type(value) in (int, float) and math.isfinite(float(value))


def read(path: Path) -> tuple[dict[str, Any], onnxruntime.InferenceSession]:
    """Reads a policy and its description. The files may be untrusted: nothing in them is run but the graph."""
    json_path = path.with_name(f"{path.name}.json")
    try:
        about, data = json.loads(contents(json_path, MOST_JSON_BYTES)), contents(path, MOST_GRAPH_BYTES)
        checks = {
            "format": about["format"] == FORMAT,
            "kind": about["kind"] == "onnx",
            "task": isinstance(about["task"], str),
            "sha256": about["sha256"] == hashlib.sha256(data).hexdigest(),
            "action_repeat": type(about["action_repeat"]) is int and about["action_repeat"] > 0,
            "control_rate_hz": is_number(about["control_rate_hz"]) and 0 < about["control_rate_hz"] < 1e6,
            "action_dtype": np.dtype(about["action_dtype"]).kind in "fiu",
            "return": about["return"] is None or all(is_number(about["return"][name]) for name in ("step", "mean")),
        }
        shape = [int(size) for size in about["input"]["shape"][1:]]
        checks["input"] = 0 <= math.prod(shape) <= MOST_NUMBERS
        action_shape = np.shape(np.asarray(about["action_low"], np.float64))
    except OSError as error:
        raise RefusedError(f"{error.filename}: {error.strerror}; export.py writes a graph and a .json") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise RefusedError(f"{json_path}: not what export.py writes ({one_line(error)[:80]})") from None
    if not all(checks.values()):
        wrong = ", ".join(name for name, is_right in checks.items() if not is_right)
        raise RefusedError(f"{json_path}: not what export.py writes of {path.name} ({wrong})")
    if about["input"].get("dtype") != "float32":
        raise RefusedError(f"{path}: takes images, and this example only handles vectors")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # enough for one observation
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        actions = session.run([about["output"]["name"]], {about["input"]["name"]: np.zeros((1, *shape), np.float32)})[0]
    except Exception as error:  # any exception of onnxruntime
        raise RefusedError(f"{path}: cannot be run ({one_line(error)[:120]})") from None
    if actions.shape[1:] != action_shape:
        raise RefusedError(
            f"{path}: gives actions of shape {actions.shape[1:]}, not of {action_shape} as in {json_path.name}"
        )
    return about, session


def run_episode(about: dict[str, Any], session: Any, env: Any, waits: bool) -> tuple[float, list[float]]:
    """Runs one episode. Returns its return, and the duration of each call of the policy in ms."""
    name, repeat, dtype = about["input"]["name"], about["action_repeat"], np.dtype(about["action_dtype"])
    period_s = repeat / about["control_rate_hz"]
    obs, total, steps, done, calls_ms = env.reset(), 0.0, 0, False, []
    if obs.shape != tuple(about["input"]["shape"][1:]):
        raise RefusedError(
            f"{about['task']}: its observations are {obs.shape} here, the policy's {about['input']['shape'][1:]}"
        )
    due_s = time.perf_counter()
    while not done and steps < env.limit:
        began_s = time.perf_counter()
        action = session.run(None, {name: obs[None]})[0][0].astype(dtype)
        calls_ms.append(1000 * (time.perf_counter() - began_s))
        for _ in range(repeat):
            obs, reward, done = env.step(action)
            total, steps = total + reward, steps + 1
            if done:
                break
        due_s += period_s
        if waits:
            time.sleep(max(0.0, due_s - time.perf_counter()))
    return total, calls_ms


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="an .onnx file of export.py's")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fast", action="store_true", help="do not wait for the task's rate")
    parser.add_argument("--env", default=None, help="a task of your own, my_package:MyEnv-v0, which imports my_package")
    arguments = parser.parse_args()
    try:
        about, session = read(arguments.path.resolve())
        name = arguments.env or about["task"]
        if ":" in name and arguments.env is None:
            raise RefusedError(f"{name}: would import a package; if it is yours, add --env {name}")
        if arguments.episodes < 1 or arguments.seed < 0:
            raise RefusedError("--episodes is 1 or more, --seed 0 or more")
        for key in ("env_kwargs", "env_wrappers"):
            if about.get(key):
                print(f"{name}: trained with {key}={about[key]}, which this example does not know", file=sys.stderr)
        env = task(name, arguments.seed)
        returns, calls_ms = [], []
        for episode in range(1, arguments.episodes + 1):
            total, taken_ms = run_episode(about, session, env, not arguments.fast)
            returns.append(total)
            calls_ms += taken_ms
            print(f"episode {episode}: return {total:.4f}", flush=True)
    except RefusedError as error:
        print(f"deploy.py: {error}", file=sys.stderr)
        return 2
    print(f"mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    if about.get("return"):
        print(f"at its export, after {about['return']['step']} steps of training: mean {about['return']['mean']:.4f}")
    print(f"a call: median {np.median(calls_ms):.3f} ms, longest {max(calls_ms):.3f} ms of {len(calls_ms)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
