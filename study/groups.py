"""Which runs are repetitions of one another: same agent, same task, and the same of everything that matters."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from settings.keys import dotted
from study.runs import Run

Values = dict[str, Any]
# What a configuration may differ in between repetitions of one experiment: the seed, the machine, what is measured and
# kept. The agent's shapes come from the task.
CHANGES_NO_TRAINING_STEP = (
    *("seed", "evaluator.seed", "replay_buffer.seed", "agent.obs_dim", "agent.obs_shape", "agent.action_dim"),
    "agent.action_range",
    *("device", "num_threads", "execution", "replay_storage", "async_envs", "env_timeout_s", "num_train_steps"),
    *("eval_frequency", "eval_in_background", "num_eval_episodes", "evaluator.num_episodes", "evaluator.max_envs"),
    *("log_*", "logger.*", "save_*", "checkpoint_*", "keep_checkpoints", "grace_s"),
)
FROM_THE_TASK = (
    *("seed", "evaluator.seed", "replay_buffer.seed", "env"),
    *("agent.obs_dim", "agent.obs_shape", "agent.action_dim", "agent.action_range", "logger.*"),
)
# Keys that follow another one, unless they are given a value of their own.
REPEATS = {
    "replay_buffer.capacity": "replay_buffer_capacity",
    "replay_buffer.with_replacement": "sample_with_replacement",
}
# What runs had before these were keys of the configuration.
EARLIER_RUNS: Values = {
    "replay_buffer._target_": "replay_buffer.ReplayBuffer",
    "replay_buffer._partial_": True,
    "env_wrappers": [],
    "eval_sample": False,
    "evaluator.sample": False,
    "from_pixels": False,
    "image_size": 84,
    "frame_stack": 3,
    "camera_id": "auto",
    "image_pad": 4,
    "preload": None,
    "preload_share": 0.0,
    "offline_updates": 0,
    "agent.encoder": None,
    "agent.augmentation": None,
}
NAMED_KEYS = 3  # at most so many are spelled out in a label
ABSENT = "absent"


@dataclass(frozen=True)
class Group:
    """Repetitions of one experiment on one task.

    Attributes:
        label: the agent's name, and what its configuration has that other groups of that agent do not.
        runs: by rising seed.
    """

    label: str
    task: str
    runs: tuple[Run, ...]


def group(runs: Sequence[Run]) -> list[Group]:
    """Groups runs by task, agent and whatever differs in their configurations; tasks by name, labels by first use."""
    settings = {run.folder: _settings_that_matter(run) for run in runs}
    labels: dict[Path, str] = {}
    for agent in dict.fromkeys(run.agent for run in runs):
        peers = [run for run in runs if run.agent == agent]
        labels |= _labels(agent, peers, [settings[run.folder] for run in peers])
    members: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        members.setdefault((run.task, labels[run.folder]), []).append(run)
    order = {label: place for place, label in enumerate(dict.fromkeys(labels[run.folder] for run in runs))}
    return [
        Group(label, task, tuple(sorted(found, key=lambda run: (run.seed, run.folder))))
        for (task, label), found in sorted(members.items(), key=lambda item: (item[0][0], order[item[0][1]]))
    ]


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Every key, seeds and shapes apart, that is not the same in all runs: its value in each of them."""
    flat = [dotted(run.config) for run in runs]
    return {
        key: values
        for key, values in _columns(flat).items()
        if len(set(map(repr, values))) > 1 and not _matches(key, FROM_THE_TASK)
    }


def _settings_that_matter(run: Run) -> Values:
    flat = EARLIER_RUNS | dotted(run.config)
    for key, original in REPEATS.items():
        if flat.get(key) == flat.get(original):
            flat.pop(key, None)
    for key in ("replay_buffer_capacity", "replay_buffer.capacity"):
        capacity = flat.get(key)
        if capacity is not None and capacity >= run.length:
            flat[key] = "all"  # a buffer that never fills is the same whatever its size
    ignored = ("env", "agent.name", *CHANGES_NO_TRAINING_STEP)
    return {key: value for key, value in flat.items() if not _matches(key, ignored)}


def _labels(agent: str, runs: Sequence[Run], settings: Sequence[Values]) -> dict[Path, str]:
    differing = {key: values for key, values in _columns(settings).items() if len(set(map(repr, values))) > 1}
    differing = {key: values for key, values in differing.items() if not _from_the_task(key, values, runs)}
    named: dict[tuple[str, ...], str] = {}  # one key of those with the same values everywhere: the first
    for key, values in differing.items():
        named.setdefault(tuple(map(repr, values)), key)
    keys = list(named.values())
    # Beyond NAMED_KEYS a label would not be read; the number tells the groups apart, the report says what differs.
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(zip(*named, strict=True)), 1)} if keys else {}
    labels = {}
    for place, run in enumerate(runs):
        parts = [f"{_short(key, keys)}={show(differing[key][place])}" for key in keys[:NAMED_KEYS]]
        if len(keys) > NAMED_KEYS:
            kind = kinds[tuple(values[place] for values in named)]
            parts.append(f"{len(keys) - NAMED_KEYS} more ({kind})")
        labels[run.folder] = ", ".join([agent, *parts])
    return labels


def _from_the_task(key: str, values: Sequence[Any], runs: Sequence[Run]) -> bool:
    """Whether one formula gives a key all its values, and each task one of them: an action repeat of that task, say."""
    written = {str(dotted(run.written).get(key)) for run in runs}
    pairs = {(run.task, repr(value)) for run, value in zip(runs, values, strict=True)}
    return len(written) == 1 and "${" in written.pop() and len(pairs) == len({run.task for run in runs})


def _columns(settings: Sequence[Values]) -> dict[str, list[Any]]:
    keys = dict.fromkeys(key for values in settings for key in values)
    return {key: [values.get(key, ABSENT) for values in settings] for key in keys}


def _short(key: str, keys: Sequence[str]) -> str:
    """`agent.actor_lr` -> `actor_lr`, unless another key ends the same."""
    last = key.rsplit(".", 1)[-1]
    return last if sum(other.rsplit(".", 1)[-1] == last for other in keys) == 1 else key


def show(value: Any) -> str:
    """A configuration's value, short; a node as its class with its arguments."""
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, dict) and "_target_" in value:
        given = ", ".join(f"{key}={show(one)}" for key, one in value.items() if not key.startswith("_"))
        return f"{str(value['_target_']).rpartition('.')[2]}({given})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)
