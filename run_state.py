"""What a run saves and goes on from. `run` is a train.Workspace throughout; its agent is a part of its own."""

import contextlib
import math
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import checkpoint
import run_folder
from checkpoint import Checkpoints
from utils import RunError, UserError, non_finite, random_state, restore_random_state

# What a run counts and remembers, beside its parts.
COUNTERS = (
    *("step", "episode", "bursts", "updates_made", "updates_from"),
    *("evaluation_due", "last_eval_step", "last_return"),
)


def state_dict(run: Any) -> dict[str, Any]:
    """Everything that the run continues from but the agent and the buffer's rows."""
    now_s = time.perf_counter()
    return {
        "counters": {name: getattr(run, name) for name in COUNTERS},
        "episode_reward": run.episode_reward.tolist(),
        "episode_length": run.episode_length.tolist(),
        "episode_age_s": (now_s - run.episode_started_s).tolist(),
        "eval_due": run.eval_due.state_dict(),
        "checkpoint_due": run.checkpoint_due.state_dict(),
        "random": random_state(run.device),
        "envs": list(run.envs.call("state_dict")),
        "seed_policy": {} if run.seed_policy is run.agent else run.seed_policy.state_dict(),
        "n_step": run.n_step.state_dict(),
        "buffer": run.replay_buffer.state_dict(),
        "evaluator": run.evaluator.state_dict() if hasattr(run.evaluator, "state_dict") else {},
        "logger": run.logger.state_dict(),
    }


def load_state_dict(run: Any, state: dict[str, Any]) -> None:
    """Restores what `state_dict` returned, in a new Workspace of the same settings."""
    for name in COUNTERS:
        setattr(run, name, state["counters"][name])
    run.episode_reward = np.array(state["episode_reward"])
    run.episode_length = np.array(state["episode_length"])
    run.episode_started_s = time.perf_counter() - np.array(state["episode_age_s"])
    run.eval_due.load_state_dict(state["eval_due"])
    run.checkpoint_due.load_state_dict(state["checkpoint_due"])
    everyone = np.ones(run.cfg.num_envs, bool)
    run.obs = run.envs.reset(options={"reset_mask": everyone, "states": state["envs"]})[0]
    if run.seed_policy is not run.agent:
        run.seed_policy.load_state_dict(state["seed_policy"])
    run.n_step.load_state_dict(state["n_step"])
    run.replay_buffer.load_state_dict(state["buffer"])
    if state["evaluator"]:
        run.evaluator.load_state_dict(state["evaluator"])
    run.logger.load_state_dict(state["logger"])
    restore_random_state(state["random"], run.device)


def save(run: Any) -> None:
    """Writes a checkpoint, unless that of this step is there. Where it fails the run goes on with the old one."""
    if not run.cfg.checkpoint_frequency or run.checkpoints.last_step == run.step:
        return
    require_finite_losses(run.logger.peek())
    parts = {"agent": run.agent.state_dict(), "run": run.state_dict()}
    wrong = non_finite(parts["agent"], "agent")
    if wrong:
        raise RunError(f"{wrong} is not finite")
    buffer = run.replay_buffer if run.cfg.save_replay_buffer else None
    try:
        run.checkpoints.save(run.step, parts, {"policy": partial(_export_policy, run.agent)}, buffer)
    except OSError as error:
        if run.checkpoints.last_step is None or not run.work_dir.is_dir():
            raise
        said = f"No checkpoint at step {run.step}: {error.strerror}; that of step {run.checkpoints.last_step} stays"
        print(said, file=sys.stderr, flush=True)


def _export_policy(agent: Any, path: Path) -> None:
    """The policy alone, of agents and networks that can be saved so."""
    if hasattr(agent, "save_policy"):
        with contextlib.suppress(UserError):
            agent.save_policy(path)


def require_finite_losses(row: dict[str, float]) -> None:
    """Raises RunError for a row of a log with a loss that is not finite."""
    for key, value in row.items():
        if key.endswith("loss") and not math.isfinite(value):
            raise RunError(f"{key} is {value}")


def restore(run: Any, identity: dict[str, Any]) -> Checkpoints:
    """Loads the newest whole checkpoint; returns what writes the next ones.

    Raises:
        UserError: if there is none, or it does not fit.
    """
    found, broken = checkpoint.newest_whole(run.work_dir, "agent", "run", rows=True, identity=identity)
    if found.step > run.cfg.num_train_steps:
        raise UserError(f"num_train_steps={run.cfg.num_train_steps}: the run is at step {found.step} already")
    agent, state = found.load("agent"), found.load("run")
    try:
        run.agent.load_state_dict(agent)
        if found.segments:
            found.load_rows(run.replay_buffer, state["buffer"]["num_added"])
        elif state["buffer"]["num_added"]:
            _collect_anew(run, state)
        run_folder.unmark_finished(run.work_dir)
        run.load_state_dict(state)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{found.path}: does not fit this run ({' '.join(str(error).split())})") from error
    print(f"Continuing from {found.path}", flush=True)
    return Checkpoints(run.work_dir, run.cfg.keep_checkpoints, identity, found, broken)


def _collect_anew(run: Any, state: dict[str, Any]) -> None:
    """Changes a saved state for a buffer whose rows were not saved."""
    cfg, counters = run.cfg, state["counters"]
    state["buffer"]["num_added"] = 0
    first = max(cfg.num_seed_steps // cfg.action_repeat, run.updates_from)
    counters["updates_from"] = min(first, cfg.replay_buffer_capacity)
    print(f"The replay buffer was not saved: no updates before {counters['updates_from']} new transitions")
