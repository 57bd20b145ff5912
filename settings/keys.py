"""Dotted keys of configurations, and which of them tell experiments apart.

Runs repeat one experiment if their settings differ in nothing that influences training, but the seed.
"""

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

# Arguments of an agent that the environment determines.
FROM_ENVIRONMENT = ("obs_dim", "obs_shape", "vector_dim", "obs_groups", "action_dim", "action_range")
SEEDS_AND_SHAPES = ("seed", "evaluator.seed", "replay_buffer.seed", *(f"agent.{name}" for name in FROM_ENVIRONMENT))
# Settings that may differ between repetitions of one experiment: the seed, the machine, what is measured and saved, and
# the shapes, which come from the task.
CHANGES_NO_TRAINING_STEP = (
    *SEEDS_AND_SHAPES,
    *("device", "num_threads", "execution", "replay_storage", "async_envs", "physics"),
    "num_train_steps",
    *("eval_frequency", "eval_in_background", "num_eval_episodes", "evaluator.num_episodes", "evaluator.max_envs"),
    "info_keys*",
    *("log_*", "logger.*", "save_*", "checkpoint_*", "keep_checkpoints"),
)


def settings_that_matter(flat: dict[str, Any], num_train_steps: int) -> dict[str, Any]:
    """Returns the settings, by dotted key, that influence training, without the task and the agent's name."""
    flat = dict(flat)
    for key in ("replay_buffer_capacity", "replay_buffer.capacity"):
        capacity = flat.get(key)
        if capacity is not None and capacity >= num_train_steps:
            flat[key] = "all"  # a buffer that never fills has the same effect in any size
    ignored = ("env", "agent.name", *CHANGES_NO_TRAINING_STEP)
    return {key: value for key, value in flat.items() if not matches(key, ignored)}


def name_of_group(flat: dict[str, Any]) -> str:
    """Returns one name for all repetitions of an experiment, such as `sac_cheetah_run_3f9a1c`."""
    matter = sorted(settings_that_matter(flat, flat["num_train_steps"]).items())
    digest = hashlib.sha256(repr(matter).encode()).hexdigest()[:6]
    return f"{flat['agent.name']}_{flat['env']}_{digest}"


def matches(key: str, patterns: Sequence[str]) -> bool:
    """Returns whether a key matches one of the patterns, in which `*` stands for anything."""
    return any(fnmatchcase(key, pattern) for pattern in patterns)
