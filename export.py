"""Exports the policy of a run: `python export.py exp/<day>/<run>`, or `.../checkpoints/step_<number>`.

Writes `export/policy.onnx` into the run's folder, and `policy.onnx.json`, which describes it. The graph maps
observations, as the environment returns them, to greedy actions in the environment's own bounds, in batches of any
size. `--format policy` writes a file for evaluate.py and `seed_policy`. Each file is compared with the policy.
"""

import argparse
import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from agent.exported import OUTPUT, Greedy, Inputs, inputs_of, onnx_bytes
from agent.off_policy import OffPolicyAgent
from agent.policy import Policy, load_policy, save_policy
from envs.episodes import EVAL_STREAM, episode_seed
from envs.observations import ObsSpace
from run.agents import EnvSpec
from run.evaluation.evaluations import BEST
from run.run_policy import RunPolicy, json_of, load_run_policy
from study import runs
from utils import OneLineParser, RunError, UserError, replacing, sha256_of, write_atomic
from video import seconds_per_step

FORMAT = "policy-export-2"
NUM_CHECKED, TOLERANCE = 1000, 1e-5  # observations; difference of actions scaled to [-1, 1]


def export(path: Path, kind: str = "onnx", trusted: Sequence[str] = (), output: Path | None = None) -> Path:
    """Writes a policy and its description; both appear after the policy has been checked. Returns the policy's file.

    Args:
        path: the folder of a run, a checkpoint in it, or its `checkpoints/best`; or the file of a policy.
        kind: onnx or policy.
        output: the file; None is a file in the run's folder, or beside a policy's file.

    Raises:
        UserError: for an agent that does not act through its policy, or an output that exists and is no export.
        RunError: if the actions of the file differ from the policy's.
    """
    source = load_run_policy(path, "cpu", trusted)
    policy = source.actor
    if isinstance(policy, OffPolicyAgent) and type(policy).act is OffPolicyAgent.act:
        policy = policy.policy
    if not isinstance(policy, Policy):
        raise UserError(f"{source.folder}: {type(policy).__name__} acts in its own way, which cannot be exported")
    suffix, name = ".pt" if kind == "policy" else ".onnx", "best" if source.path == source.folder / BEST else "policy"
    beside = source.path if source.path.suffix == ".pt" else source.folder / "export" / name
    output = output or beside.with_suffix(suffix)
    if output.suffix != suffix or (output.exists() and not json_of(output).exists()):
        raise UserError(f"--output {output}: must end in {suffix}, and be new or an earlier export")
    output.parent.mkdir(parents=True, exist_ok=True)
    env = source.make_env(False)
    obs, action_map, spec = _observe(env, policy, source), env.get_wrapper_attr("action_map"), EnvSpec.of(env).obs
    with replacing(output) as new:
        if kind == "policy":
            save_policy(policy, new)
            saved = load_policy(new, trusted=trusted)
            difference = worst_difference(lambda obs: action_map.to_env(saved.act(obs)), policy, obs, action_map)
        else:
            new.write_bytes(onnx_bytes(Greedy(policy, action_map), inputs_of(spec, obs[:8])))
            os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime sends usage data by default
            from onnxruntime import InferenceSession  # an optional package

            run = InferenceSession(new, providers=["CPUExecutionProvider"]).run
            difference = worst_difference(lambda obs: run([OUTPUT], inputs_of(spec, obs))[0], policy, obs, action_map)
        if not difference <= TOLERANCE:  # nor nan
            raise RunError(f"{output}: its actions are {difference:.1e} from the policy's, more than {TOLERANCE:g}")
        about = _describe(source, kind, env, inputs_of(spec, obs[:8]))
        about |= {"worst_difference": difference, "sha256": sha256_of(new)}
    env.close()
    write_atomic(json_of(output), json.dumps(about, indent=1) + "\n")
    print(f"{output}: {about['task']}, {about['agent']}, step {about['step']}")
    print(f"worst difference from the policy over {len(obs)} observations: {difference:.1e}")
    return output


def _observe(env: gym.Env, policy: Policy, source: RunPolicy) -> np.ndarray:
    """Returns observations of evaluation episodes, (NUM_CHECKED, *obs_shape)."""
    observations: list[np.ndarray] = []
    episode, done, obs = 0, True, np.zeros(0)
    while len(observations) < NUM_CHECKED:
        if done:
            obs, _ = env.reset(seed=episode_seed(source.cfg.seed, EVAL_STREAM, source.step, episode))
            episode += 1
        observations.append(np.asarray(obs))
        obs, _, terminated, truncated, _ = env.step(policy.act(observations[-1]))
        done = terminated or truncated
    return np.stack(observations)


def _describe(source: RunPolicy, kind: str, env: gym.Env, example: Inputs) -> dict[str, Any]:
    cfg, action_map = source.cfg, env.get_wrapper_attr("action_map")
    action_dtype = "int64" if action_map.is_discrete else "float32"
    space, inputs = env.observation_space, []
    keys, stack = (space.keys, space.obs_spec.frame_stack) if isinstance(space, ObsSpace) else ({}, 1)
    for name, rows in example.items():
        of_part = keys.get("image" if rows.dtype == np.uint8 else "vector", [""])
        shape = {"name": name, "shape": ["batch", *rows.shape[1:]], "dtype": str(rows.dtype)}
        inputs.append({**shape, "keys": of_part, "frame_stack": stack})
    return {
        "format": FORMAT,
        "kind": kind,
        "task": cfg.env,
        "agent": cfg.agent["name"],
        "step": source.step,
        "inputs": inputs,
        "output": {"name": OUTPUT, "shape": ["batch", *action_map.low.shape], "dtype": action_dtype},
        "action_low": action_map.low.tolist(),
        "action_high": action_map.high.tolist(),
        "action_dtype": str(action_map.dtype),
        "action_repeat": cfg.action_repeat,
        "env_kwargs": dict(cfg.env_kwargs),
        "env_wrappers": [node["_target_"] for node in cfg.env_wrappers],
        "control_rate_hz": 1 / seconds_per_step(env, 1),
        "return": source.evaluation if source.path.suffix == ".pt" else _find_return(source),
        **({"settings": dataclasses.asdict(cfg)} if kind == "policy" else {}),
    }


def _find_return(source: RunPolicy) -> dict[str, Any] | None:
    """Returns the step, mean and standard deviation of the run's newest evaluation up to the policy's step."""
    log = runs.read(source.folder / "eval.csv")
    steps = [step for step in log.get("episode_reward", ([], []))[0] if step <= source.step]
    names = {"mean": "episode_reward", "std": "episode_reward_std"}
    return {"step": int(steps[-1])} | {k: log[n][1][len(steps) - 1] for k, n in names.items()} if steps else None


def worst_difference(act: Callable[[Any], Any], policy: Policy, obs: np.ndarray, action_map: Any) -> float:
    """Returns the largest difference between actions of a file and of the policy, in [-1, 1], alone and in a batch.

    For discrete actions it is in log-probability, as rounding may decide between equally probable actions.
    """
    actions = action_map.scaled(np.concatenate([act(obs[:1]), act(obs[1:])]))
    if action_map.is_discrete:
        log_probs = policy.log_probs(obs)
        return float((log_probs.max(1) - np.take_along_axis(log_probs, actions.astype(np.int64), 1)[:, 0]).max())
    return float(np.abs(actions - policy.act(obs)).max())


def main() -> None:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("path", type=Path, help="the folder of a run, a checkpoint in it, or a policy's file")
    add("--best", action="store_true", help="the policy of the run's best evaluation")
    add("--format", choices=("onnx", "policy"), default="onnx", help="default: onnx")
    add("--output", type=Path, help="default: export/policy.onnx or .pt in the run's folder; beside a policy's file")
    add("--trust", action="append", default=[], metavar="PACKAGE", help="a package of the run's classes")
    args = parser.parse_args()
    try:
        export(args.path / BEST if args.best else args.path, args.format, args.trust, args.output)
    except ModuleNotFoundError as error:
        parser.error(f"--format onnx: {error}; pip install -e '.[export]'")
    except (UserError, RunError) as error:
        parser.error(error)


if __name__ == "__main__":
    main()
