"""Exports the policy of a run: `python export.py exp/<day>/<run>`, or `.../checkpoints/step_<number>`.

Writes `export/policy.onnx` into the run's folder, and `policy.onnx.json`, which describes it. The graph maps
observations, as the environment returns them, to greedy actions in the environment's own bounds, in batches of any
size. `--format policy` writes a file for this project's evaluate.py and `seed_policy`, without the run's folder.
`--best` exports the policy of the best evaluation. Each file is compared with the policy before it appears
(docs/EXPORT.md).
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from agent.exported import OUTPUT, Greedy, Inputs, inputs_of, onnx_bytes
from agent.off_policy import OffPolicyAgent
from agent.policy import Policy
from agent.policy_file import load_policy, plain_policy
from envs.episodes import EVAL_STREAM, episode_seed
from envs.observations import ObsSpace
from files.reading import checksum, read_bytes
from files.tensors import save_plain
from files.writing import NewFile, write_text
from run.best import BEST
from run.env_spec import EnvSpec
from run.saving import policy_bundle, run_policy, trust
from run.saving.run_policy import RunPolicy
from settings.operating_system import begin_command
from study.runs import read
from utils import OneLineParser, RunError, UserError, print_error
from video import seconds_per_step

FORMAT = "policy-export-1"
NUM_CHECKED, TOLERANCE = 1000, 1e-5  # observations; difference of actions scaled to [-1, 1]
BATCH_SIZES = (1, 7, NUM_CHECKED)
Act = Callable[[np.ndarray], np.ndarray]  # observations -> actions in the environment's own bounds
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def export(path: Path, kind: str = "onnx", trusted: Sequence[str] = (), output: Path | None = None) -> Path:
    """Writes a policy and its description; both files appear after they have been checked. Returns the policy's file.

    Args:
        path: the folder of a run, a checkpoint in it, or its `checkpoints/best`; or the file of a policy.
        kind: onnx or policy.
        output: the file; None is a file in the run's folder.

    Raises:
        UserError: for a policy that cannot be exported, or a file that cannot be written.
        RunError: if the actions of the file differ from the policy's.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if kind == "onnx" and missing:
        raise UserError(f"--format onnx: {', '.join(missing)} missing; pip install -e '.[export]'")
    source = run_policy.load(path, "cpu", trusted)
    policy = _policy_of(source)
    env = source.make_env(False)
    own_actions = env.get_wrapper_attr("own_actions")
    obs = _observations(env, policy, source)
    to_inputs = partial(inputs_of, EnvSpec.of(env).obs)
    example = to_inputs(obs[:8])
    description = _description(source, kind, env, example)
    env.close()
    output = output or _default_output(source, kind)
    if kind == "policy" and not policy_bundle.is_bundle(output):
        raise UserError(f"--output {output}: a policy's file goes here, whose name ends in .pt")
    if output.resolve() == source.path:
        raise UserError(f"--output {output}: that is the policy itself; another file goes here")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        new = NewFile(output)
        with new as file:
            if kind == "policy":
                save_plain(plain_policy(policy), file)
            else:
                file.write(onnx_bytes(Greedy(policy, own_actions), example))
            file.flush()
            difference = worst_difference(_load(kind, new.partial, own_actions, to_inputs), policy, obs, own_actions)
            if not difference <= TOLERANCE:
                raise RunError(f"{output}: its actions are {difference:.1e} from the policy's, more than {TOLERANCE:g}")
            description |= {"worst_difference": difference, "sha256": checksum(new.partial)}
        text = json.dumps(description, indent=1, ensure_ascii=False)  # read back as YAML, which has no surrogates
        write_text(policy_bundle.json_of(output), f"{text}\n")
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror})") from None
    print(f"{output}: {description['task']}, {description['agent']}, step {description['step']}")
    print(f"worst difference from the policy over {len(obs)} observations: {difference:.1e}")
    return output


def _default_output(source: RunPolicy, kind: str) -> Path:
    suffix = "pt" if kind == "policy" else kind
    if policy_bundle.is_bundle(source.path):
        return source.path.with_suffix(f".{suffix}")
    name = "best" if source.path == source.folder / BEST else "policy"
    return source.folder / "export" / f"{name}.{suffix}"


def _policy_of(source: RunPolicy) -> Policy:
    actor = source.actor
    if isinstance(actor, Policy):
        return actor
    if not isinstance(actor, OffPolicyAgent) or type(actor).act is not OffPolicyAgent.act:
        raise UserError(f"{source.folder}: {type(actor).__name__} acts in its own way, which cannot be exported")
    return actor.policy


def _observations(env: gym.Env, policy: Policy, source: RunPolicy) -> np.ndarray:
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


def _description(source: RunPolicy, kind: str, env: gym.Env, example: Inputs) -> dict[str, Any]:
    cfg, own_actions = source.cfg, env.get_wrapper_attr("own_actions")
    action_dtype = "int64" if own_actions.is_discrete else "float32"
    inputs: list[dict[str, Any]] = [
        {"name": name, "shape": ["batch", *rows.shape[1:]], "dtype": str(rows.dtype)} for name, rows in example.items()
    ]
    if isinstance(space := env.observation_space, ObsSpace) and space.obs_spec.vector_dim:
        for each in inputs:
            each |= {"keys": space.keys["image" if each["dtype"] == "uint8" else "vector"]}
            each |= {"frame_stack": space.obs_spec.frame_stack}
    return {
        "format": FORMAT,
        "kind": kind,
        "task": cfg.env,
        "agent": cfg.agent["name"],
        "step": source.step,
        "input": inputs[0],
        "output": {"name": OUTPUT, "shape": ["batch", *own_actions.low.shape], "dtype": action_dtype},
        "action_low": own_actions.low.tolist(),
        "action_high": own_actions.high.tolist(),
        "action_dtype": str(own_actions.dtype),
        "action_repeat": cfg.action_repeat,
        "env_kwargs": dict(cfg.env_kwargs),
        "env_wrappers": [node["_target_"] for node in cfg.env_wrappers],
        "control_rate_hz": 1 / seconds_per_step(env, 1),
        "return": source.evaluation if policy_bundle.is_bundle(source.path) else _return_of(source),
        **({"inputs": inputs} if len(inputs) > 1 else {}),
        **({"settings": dataclasses.asdict(cfg)} if kind == "policy" else {}),
    }


def _return_of(source: RunPolicy) -> dict[str, float | None] | None:
    """Returns the step, mean and standard deviation of the run's newest evaluation up to the policy's step."""
    columns = read(source.folder / "eval.csv")
    steps, means = columns.get("episode_reward", ([], []))
    evaluations = [(step, mean) for step, mean in zip(steps, means, strict=True) if step <= source.step]
    if not evaluations:
        return None
    step, mean = evaluations[-1]
    stds = dict(zip(*columns.get("episode_reward_std", ([], [])), strict=True))
    return {"step": int(step), "mean": mean, "std": stds.get(step)}


def _load(kind: str, path: Path, own_actions: Any, to_inputs: Callable[[np.ndarray], Inputs]) -> Act:
    """Loads the written file."""
    if kind == "policy":
        policy, low, shift, half = load_policy(path), own_actions.low, own_actions.shift, own_actions.half
        return lambda obs: low + (policy.act(obs).reshape(-1, *low.shape) + shift) * half
    data = read_bytes(path)  # both libraries read paths as UTF-8, whatever the locale
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime sends usage data by default
    import onnxruntime  # imported late: it is optional

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return lambda obs: session.run([OUTPUT], to_inputs(obs))[0]


def worst_difference(act: Act, policy: Policy, obs: np.ndarray, own_actions: Any) -> float:
    """Returns the largest difference between actions of a file and of the policy, in [-1, 1], over all batch sizes.

    For discrete actions, the difference is in log-probability, as rounding may decide between equally probable actions.
    """
    expected = policy.act(obs).astype(np.float64)
    log_probs = policy.log_probs(obs) if own_actions.is_discrete else None
    worst = 0.0
    for size in BATCH_SIZES:
        for start in range(0, len(obs), size):
            actions = own_actions.scaled(act(obs[start : start + size]))
            differences = np.abs(actions - expected[start : start + size])
            if log_probs is not None and policy.action_range[0] <= actions.min() <= actions.max() < log_probs.shape[1]:
                rows = log_probs[start : start + size]
                differences = rows.max(1) - np.take_along_axis(rows, actions.astype(np.int64), 1)[:, 0]
            worst = max(worst, float(differences.max())) if np.isfinite(differences).all() else float("inf")
    return worst


def main() -> int:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the folder of a run, a checkpoint in it, or a policy's file")
    parser.add_argument("--best", action="store_true", help="the policy of the run's best evaluation")
    parser.add_argument("--format", choices=("onnx", "policy"), default="onnx", help="default: onnx")
    place = "default: <run folder>/export/policy.<format>, .pt for a policy; beside a policy's file"
    parser.add_argument("--output", type=Path, help=place)
    trust.add_option(parser)
    arguments = parser.parse_args()
    path = arguments.path / BEST if arguments.best else arguments.path
    try:
        begin_command()
        export(path, arguments.format, trust.given(arguments), arguments.output)
    except (UserError, RunError) as error:
        return print_error(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
