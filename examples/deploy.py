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
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime sends usage data by default
try:
    import onnxruntime
except ModuleNotFoundError as error:
    sys.exit(f"deploy.py: {error}; pip install -r examples/requirements-deploy.txt")

FORMAT = "policy-export-1"
EPISODE_STEPS = 1000  # for tasks without a limit of their own
MOST_NUMBERS, MOST_FRAMES = 2**22, 16  # in an observation
MOST_JSON_BYTES, MOST_GRAPH_BYTES = 2**20, 2**31


class RefusedError(Exception):
    """Ends the program with one line."""


class SuiteTask:
    """A task of the DeepMind Control Suite."""

    limit = EPISODE_STEPS

    def __init__(self, domain: str, task: str, seed: int, keys: list[str]):
        from dm_control import suite

        settings = {"task_kwargs": {"random": seed}, "environment_kwargs": {"flat_observation": "" in keys}}
        self._env = suite.load(domain, task, **settings)

    def reset(self) -> Any:
        return self._env.reset().observation

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        step = self._env.step(action)
        return step.observation, float(step.reward or 0.0), step.last()

    @staticmethod
    def part(obs: Any, key: str) -> np.ndarray:
        return np.ravel(obs[key or "observations"]).astype(np.float32)


class GymnasiumTask:
    """An environment that is registered with Gymnasium."""

    def __init__(self, name: str, seed: int):
        import gymnasium as gym

        self._gym, self._seed = gym, seed
        self._env = gym.make(name)
        self.limit = self._env.spec.max_episode_steps or EPISODE_STEPS

    def reset(self) -> Any:
        obs, _ = self._env.reset(seed=self._seed)
        self._seed += 1
        return obs

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        obs, reward, terminated, truncated, _ = self._env.step(action)
        return obs, float(reward), terminated or truncated

    def part(self, obs: Any, key: str) -> np.ndarray:
        space = self._env.observation_space
        for name in filter(None, key.split(".")):
            index = int(name) if isinstance(space, self._gym.spaces.Tuple) else name
            space, obs = space[index], obs[index]
        is_image = space.dtype == np.uint8 and len(space.shape) > 1
        return obs if is_image else np.asarray(self._gym.spaces.flatten(space, obs), np.float32)


class Frames:
    """The policy's inputs from the newest observations, by name.

    Args:
        inputs: of the description: the keys of the environment's dictionary in each, and the frames that are stacked.
    """

    def __init__(self, inputs: list[dict[str, Any]], env: Any):
        self._inputs, self._env = inputs, env
        self._newest: list[deque[np.ndarray]] = [deque(maxlen=each.get("frame_stack", 1)) for each in inputs]

    def add(self, obs: Any, is_first: bool = False) -> None:
        for each, newest in zip(self._inputs, self._newest, strict=True):
            parts = [self._env.part(obs, key) for key in each.get("keys", [""])]
            frame = np.concatenate([channels_first(part) if part.dtype == np.uint8 else part for part in parts])
            newest.extend([frame] * (newest.maxlen if is_first else 1))

    def arrays(self) -> dict[str, np.ndarray]:
        """Channels frame by frame, the oldest first; the values of a number side by side."""
        stacks = [np.concatenate(n) if n[0].ndim == 3 else np.stack(n, axis=1).ravel() for n in self._newest]
        return {each["name"]: stack[None] for each, stack in zip(self._inputs, stacks, strict=True)}


def channels_first(image: np.ndarray) -> np.ndarray:
    """(height, width), (height, width, channels) or (channels, height, width) -> (channels, height, width)."""
    if image.ndim == 2:
        return image[None]
    return image.transpose(2, 0, 1) if image.shape[2] in (1, 3, 4) and image.shape[2] < image.shape[0] else image


def task(name: str, seed: int, keys: list[str]) -> Any:
    os.environ.setdefault("MUJOCO_GL", "disabled")  # nothing is drawn
    try:
        from dm_control import suite

        for domain, task_name in suite.ALL_TASKS:
            if name == f"{domain}_{task_name}":
                return SuiteTask(domain, task_name, seed, keys)
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
        inputs = about["inputs"] = about.get("inputs", [about["input"]])
        empty = {each["name"]: ([int(size) for size in each["shape"][1:]], each["dtype"]) for each in inputs}
        are_small = all(0 <= math.prod(shape) <= MOST_NUMBERS for shape, _ in empty.values())
        stacks = [each.get("frame_stack", 1) for each in inputs]
        checks |= {
            "input": are_small and len(empty) == len(inputs),  # no name occurs twice
            "keys": all(isinstance(key, str) for each in inputs for key in each.get("keys", [])),
            "frame_stack": all(type(stack) is int and 0 < stack <= MOST_FRAMES for stack in stacks),
        }
        action_shape = np.shape(np.asarray(about["action_low"], np.float64))
    except OSError as error:
        raise RefusedError(f"{error.filename}: {error.strerror}; export.py writes a graph and a .json") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise RefusedError(f"{json_path}: not what export.py writes ({one_line(error)[:80]})") from None
    if not all(checks.values()):
        wrong = ", ".join(name for name, is_right in checks.items() if not is_right)
        raise RefusedError(f"{json_path}: not what export.py writes of {path.name} ({wrong})")
    if len(about["inputs"]) == 1 and about["input"]["dtype"] != "float32":
        raise RefusedError(
            f"{path}: takes images alone, and this example only handles vectors, and images with vectors"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # enough for one observation
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        zeros = {name: np.zeros((1, *shape), dtype) for name, (shape, dtype) in empty.items()}
        actions = session.run([about["output"]["name"]], zeros)[0]
    except Exception as error:  # any exception of onnxruntime
        raise RefusedError(f"{path}: cannot be run ({one_line(error)[:120]})") from None
    if actions.shape[1:] != action_shape:
        raise RefusedError(
            f"{path}: gives actions of shape {actions.shape[1:]}, not of {action_shape} as in {json_path.name}"
        )
    return about, session


def run_episode(about: dict[str, Any], session: Any, env: Any, waits: bool) -> tuple[float, list[float]]:
    """Runs one episode. Returns its return, and the duration of each call of the policy in ms."""
    repeat, dtype = about["action_repeat"], np.dtype(about["action_dtype"])
    period_s = repeat / about["control_rate_hz"]
    total, steps, done, calls_ms = 0.0, 0, False, []
    frames = Frames(about["inputs"], env)
    try:
        frames.add(env.reset(), is_first=True)
    except (KeyError, IndexError, TypeError) as error:
        raise RefusedError(f"{about['task']}: its observations have no {one_line(error)}") from None
    for each, array in zip(about["inputs"], frames.arrays().values(), strict=True):
        if array.shape[1:] != tuple(each["shape"][1:]):
            raise RefusedError(
                f"{about['task']}: its observations are {array.shape[1:]} here, the policy's {each['shape'][1:]}"
            )
    due_s = time.perf_counter()
    while not done and steps < env.limit:
        began_s = time.perf_counter()
        action = session.run(None, frames.arrays())[0][0]
        action = (np.rint(action) if dtype.kind in "iu" else action).astype(dtype)
        calls_ms.append(1000 * (time.perf_counter() - began_s))
        for _ in range(repeat):
            obs, reward, done = env.step(action)
            total, steps = total + reward, steps + 1
            if done:
                break
        frames.add(obs)
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
    parser.add_argument("--env", help="a task of your own, my_package:MyEnv-v0, which imports my_package")
    arguments = parser.parse_args()
    try:
        if arguments.episodes < 1:
            raise RefusedError(f"--episodes {arguments.episodes}: 1 or more")
        if arguments.seed < 0:
            raise RefusedError(f"--seed {arguments.seed}: 0 or more")
        about, session = read(arguments.path.resolve())
        name = arguments.env or about["task"]
        if ":" in name and arguments.env is None:
            raise RefusedError(f"{name}: would import a package; if it is yours, add --env {name}")
        for key in ("env_kwargs", "env_wrappers"):
            if about.get(key):
                print(f"{name}: trained with {key}={about[key]}, which this example does not know", file=sys.stderr)
        env = task(name, arguments.seed, [key for each in about["inputs"] for key in each.get("keys", [""])])
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
