"""Takes a run's policy to where torch is not: `python export.py exp/<day>/<run>`, or `.../checkpoints/step_<number>`.

Writes `export/policy.onnx` into the run's folder, and beside it `policy.onnx.json`, which says what the file is of. The
graph takes observations as the environment gives them and gives greedy actions in the environment's own bounds, for a
batch of any size. `--format torchscript` writes a file for libtorch instead; `--best` takes the policy that was
evaluated best. `--format policy` writes a file for this project's own evaluate.py and `seed_policy`, which needs no
run's folder. What is written is played beside the policy first (docs/EXPORT.md).
"""

import argparse
import contextlib
import dataclasses
import hashlib
import importlib.util
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from agent.exported import INPUT, OUTPUT, Greedy, write_onnx, write_torchscript
from agent.off_policy import OffPolicyAgent
from agent.policy import Policy
from agent.policy_file import load_policy, save_policy
from envs.episodes import EVAL_STREAM, episode_seed
from run.saving import best, checkpoint_files, policy_bundle, run_policy, trust
from run.saving.run_policy import RunPolicy
from study.runs import read
from utils import RunError, UserError, one_line, write_atomically
from video import seconds_per_step

FORMAT = "policy-export-1"
CHECKED, MOST_APART = 1000, 1e-5  # observations; in halves of an action's interval, so in [-1, 1]
BATCHES = (1, 7, CHECKED)
Run = Callable[[np.ndarray], np.ndarray]
SUFFIXES = {"policy": "pt"}  # of the others, the format
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def export(path: Path, kind: str = "onnx", trusted: Sequence[str] = (), output: Path | None = None) -> Path:
    """Writes a run's policy, and what it is of; both appear when they have been checked.

    Args:
        path: the folder of a run, a checkpoint in it, or its `checkpoints/best`; or a file that was written so.
        kind: onnx, torchscript or policy.
        trusted: packages whose classes the run's configuration may name beside this project's.
        output: the file; None is in the run's folder.

    Returns:
        The file.

    Raises:
        UserError: for a run whose policy cannot be exported, or a file that cannot be written.
        RunError: if the file acts otherwise than the policy.
    """
    if kind == "onnx":
        _require_packages()
    found = run_policy.load(path, "cpu", trusted)
    policy = _policy_of(found)
    env = found.make_env(False)
    own = env.get_wrapper_attr("own_actions")
    obs = _observations(env, policy, found)
    about = _about(found, kind, env)
    env.close()
    output = output or _place_of(found, kind)
    if output.is_dir() or not output.name:
        raise UserError(f"--output {output}: a folder; name a file")
    if kind == "policy" and (not policy_bundle.is_file(output) or output.resolve() == found.path):
        raise UserError(f"--output {output}: a policy's file goes here, another one, whose name ends in .pt")
    partial = output.with_name(f".{output.name}.part")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if kind == "policy":
            checkpoint_files.write_file(lambda path: save_policy(policy, path), partial)
        else:
            greedy = Greedy(policy, own.low, own.high)
            write = write_onnx if kind == "onnx" else write_torchscript
            checkpoint_files.write_file(lambda path: write(greedy, obs[:8], path), partial)
        apart = worst_difference(_runner(kind, partial, own), policy, obs, own)
        if not apart <= MOST_APART:
            raise RunError(f"{output}: its actions are {apart:.1e} from the policy's, more than {MOST_APART:g}")
        about |= {"worst_difference": apart, "sha256": hashlib.sha256(partial.read_bytes()).hexdigest()}
        partial.replace(output)
        said = json.dumps(about, indent=1, ensure_ascii=False)  # YAML, as which a policy's is read, has no surrogates
        write_atomically(policy_bundle.json_of(output), f"{said}\n")
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror})") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    print(f"{output}: {about['task']}, {about['agent']}, step {about['step']}")
    print(f"worst difference from the policy over {len(obs)} observations: {apart:.1e}")
    return output


def _place_of(found: RunPolicy, kind: str) -> Path:
    """Where it goes if nobody says."""
    suffix = SUFFIXES.get(kind, kind)
    if policy_bundle.is_file(found.path):
        return found.path.with_suffix(f".{suffix}")
    name = "best" if found.path == found.folder / best.BEST else "policy"
    return found.folder / "export" / f"{name}.{suffix}"


def _require_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"--format onnx: {', '.join(missing)} missing; pip install -e '.[export]'")


def _policy_of(found: RunPolicy) -> Policy:
    """What acts greedily, and is made of tensors alone."""
    actor = found.actor
    if isinstance(actor, Policy):
        return actor
    if not isinstance(actor, OffPolicyAgent) or type(actor).act is not OffPolicyAgent.act:
        raise UserError(f"{found.folder}: {type(actor).__name__} acts in its own way, which cannot be exported")
    return actor.policy


def _observations(env: gym.Env, policy: Policy, found: RunPolicy) -> np.ndarray:
    """What the policy sees where it acts: (CHECKED, obs_dim) float32, or images (CHECKED, C, H, W) uint8."""
    kept: list[np.ndarray] = []
    episode, over, obs = 0, True, np.zeros(0)
    while len(kept) < CHECKED:
        if over:
            obs, _ = env.reset(seed=episode_seed(found.cfg.seed, EVAL_STREAM, found.step, episode))
            episode += 1
        kept.append(np.asarray(obs, np.float32 if obs.ndim == 1 else np.uint8))
        obs, _, terminated, truncated, _ = env.step(policy.act(kept[-1]))
        over = terminated or truncated
    return np.stack(kept)


def _about(found: RunPolicy, kind: str, env: gym.Env) -> dict[str, Any]:
    """What the file is of; plain values."""
    cfg, own = found.cfg, env.get_wrapper_attr("own_actions")
    obs_shape = list(env.observation_space.shape or ())
    obs_dtype = "float32" if len(obs_shape) == 1 else "uint8"
    settings = {"settings": dataclasses.asdict(cfg)} if kind == "policy" else {}
    return {
        "format": FORMAT,
        "kind": kind,
        "task": cfg.env,
        "agent": cfg.agent["name"],
        "step": found.step,
        "input": {"name": INPUT, "shape": ["batch", *obs_shape], "dtype": obs_dtype},
        "output": {"name": OUTPUT, "shape": ["batch", *own.low.shape], "dtype": "float32"},
        "action_low": own.low.tolist(),
        "action_high": own.high.tolist(),
        "action_dtype": str(own.dtype),
        "action_repeat": cfg.action_repeat,
        "env_kwargs": dict(cfg.env_kwargs),
        "env_wrappers": [node["_target_"] for node in cfg.env_wrappers],
        "control_rate_hz": 1 / seconds_per_step(env, 1),
        "return": found.evaluation if policy_bundle.is_file(found.path) else _return_of(found),
    } | settings


def _return_of(found: RunPolicy) -> dict[str, float | None] | None:
    """Of the run's evaluation at that step, or the newest one before it."""
    columns = read(found.folder / "eval.csv")
    steps, means = columns.get("episode_reward", ([], []))
    before = [index for index, step in enumerate(steps) if step <= found.step]
    if not before:
        return None
    spread = dict(zip(*columns.get("episode_reward_std", ([], [])), strict=True))
    step = steps[before[-1]]
    return {"step": int(step), "mean": means[before[-1]], "std": spread.get(step)}


def _runner(kind: str, path: Path, own: Any) -> Run:
    """What runs the file that was written, in the environment's own bounds."""
    if kind == "policy":
        policy = load_policy(path)
        return lambda obs: own.low + (policy.act(obs).reshape(-1, *own.low.shape) + 1.0) * (own.high - own.low) / 2
    data = path.read_bytes()  # both libraries would take the path for UTF-8, whatever the locale says
    if kind == "torchscript":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are other formats
            program = torch.jit.load(io.BytesIO(data))
        return lambda obs: program(torch.from_numpy(obs)).numpy()
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it sends usage data otherwise, and keeps files at home
    import onnxruntime  # not before: it is optional

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return lambda obs: session.run([OUTPUT], {INPUT: obs})[0]


def worst_difference(run: Run, policy: Policy, obs: np.ndarray, own: Any) -> float:
    """Between the file's actions and the policy's, in [-1, 1], over observations in batches of several sizes."""
    expected = policy.act(obs).astype(np.float64)
    half = (own.high - own.low) / 2
    worst = 0.0
    for size in BATCHES:
        for start in range(0, len(obs), size):
            actions = ((run(obs[start : start + size]) - own.low) / half - 1.0).reshape(-1, expected.shape[1])
            apart = np.abs(actions - expected[start : start + size])
            worst = max(worst, float(apart.max())) if np.isfinite(apart).all() else float("inf")
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the folder of a run, a checkpoint in it, or a policy's file")
    parser.add_argument("--best", action="store_true", help="the policy of the run's best evaluation")
    parser.add_argument("--format", choices=("onnx", "torchscript", "policy"), default="onnx", help="default: onnx")
    place = "default: <run folder>/export/policy.<format>, .pt for a policy; beside a policy's file"
    parser.add_argument("--output", type=Path, default=None, help=place)
    parser.add_argument(
        "--trust", action="append", default=[], metavar="PACKAGE", help="as for evaluate.py: classes of your own"
    )
    arguments = parser.parse_args()
    path = arguments.path / best.BEST if arguments.best else arguments.path
    try:
        trusted = [name for given in arguments.trust for name in trust.names(given)]
        export(path, arguments.format, trusted, arguments.output)
    except (UserError, RunError) as error:
        print(f"export.py: {one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
