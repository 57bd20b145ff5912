"""Groups runs that repeat one experiment: equal task, agent, and settings that influence training."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from settings.keys import FROM_ENVIRONMENT, dotted
from settings.repetitions import matches, settings_that_matter
from study import statistics
from study.runs import Run
from study.statistics import Average

Values = dict[str, Any]
FROM_THE_TASK = (
    *("seed", "evaluator.seed", "replay_buffer.seed", "env", "logger.*"),
    *(f"agent.{name}" for name in FROM_ENVIRONMENT),
)
# Values of keys that older runs' configurations lack.
EARLIER_RUNS: Values = {
    "replay_buffer._target_": "replay_buffer.ReplayBuffer",
    "replay_buffer._partial_": True,
    "env_wrappers": [],
    "eval_sample": False,
    "evaluator.sample": False,
    "from_pixels": False,
    "image_size": 84,
    "frame_stack": "auto",
    "obs_groups": None,
    "action_bounds": None,
    "camera_id": "auto",
    "image_pad": 4,
    "preload": None,
    "preload_share": 0.0,
    "offline_updates": 0,
    "stagger_steps": 0,
    "agent.encoder": None,
    "agent.augmentation": None,
}
IMAGE_STACK = 3  # frames; the value of `auto` for images
MOST_NAMED_KEYS = 3  # in a label
ABSENT = "absent"


@dataclass(frozen=True)
class Group:
    """Repetitions of one experiment on one task.

    Attributes:
        label: the agent's name, and the settings in which it differs from other groups of that agent.
        runs: sorted by seed.
    """

    label: str
    task: str
    runs: tuple[Run, ...]

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if run.finished]

    @property
    def longest(self) -> list[Run]:
        """The finished runs that are as long as the longest of them, whose final returns can be averaged."""
        length = max((run.length for run in self.finished), default=0)
        return [run for run in self.finished if run.length == length]

    @property
    def repeats_seeds(self) -> bool:
        """Whether two of the runs have the same seed."""
        return len({run.seed for run in self.runs}) < len(self.runs)

    @cached_property
    def average(self) -> Average:
        """The mean return over the runs."""
        return statistics.mean([run.returns for run in self.runs])


def _values(run: Run) -> Values:
    values = EARLIER_RUNS | dotted(run.config)
    if "obs_groups" not in run.config and values["frame_stack"] == IMAGE_STACK:  # vectors ignored it then
        values["frame_stack"] = "auto"
    return values


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups runs by task, agent and differing settings; sorted by task, then by the first use of their labels."""
    settings = {run.folder: settings_that_matter(_values(run), run.length) for run in runs}
    labels: dict[Path, str] = {}
    for agent in dict.fromkeys(run.agent for run in runs):
        peers = [run for run in runs if run.agent == agent]
        labels |= _labels(agent, peers, [settings[run.folder] for run in peers])
    members: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        members.setdefault((run.task, labels[run.folder]), []).append(run)
    order = list(dict.fromkeys(labels[run.folder] for run in runs))
    return [
        Group(label, task, tuple(sorted(members[task, label], key=lambda run: (run.seed, run.folder))))
        for task, label in sorted(members, key=lambda key: (key[0], order.index(key[1])))
    ]


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Returns each key, except seeds and shapes, whose value differs between runs, with its value in each run."""
    differing = _differing([dotted(run.config) for run in runs])
    return {key: values for key, values in differing.items() if not matches(key, FROM_THE_TASK)}


def _labels(agent: str, runs: Sequence[Run], settings: Sequence[Values]) -> dict[Path, str]:
    differing = {key: values for key, values in _differing(settings).items() if not _follows_task(key, values, runs)}
    first_keys: dict[tuple[str, ...], str] = {}  # a label names only the first of keys with equal values in all runs
    for key, values in differing.items():
        first_keys.setdefault(tuple(map(repr, values)), key)
    keys = list(first_keys.values())
    # More keys would make a label unreadable; a number distinguishes the groups, and the report shows the differences.
    combinations = list(dict.fromkeys(zip(*first_keys, strict=True)))
    labels = {}
    for index, run in enumerate(runs):
        words = [f"{_short(key, keys)}={show(differing[key][index])}" for key in keys[:MOST_NAMED_KEYS]]
        if len(keys) > MOST_NAMED_KEYS:
            number = combinations.index(tuple(values[index] for values in first_keys)) + 1
            words.append(f"{len(keys) - MOST_NAMED_KEYS} more ({number})")
        labels[run.folder] = ", ".join([agent, *words])
    return labels


def _follows_task(key: str, values: Sequence[Any], runs: Sequence[Run]) -> bool:
    """Returns whether a key has one interpolation in all runs and one value per task, such as the action repeat."""
    written = {str(dotted(run.written).get(key)) for run in runs}
    pairs = {(run.task, repr(value)) for run, value in zip(runs, values, strict=True)}
    return len(written) == 1 and "${" in written.pop() and len(pairs) == len({run.task for run in runs})


def _differing(settings: Sequence[Values]) -> dict[str, list[Any]]:
    """Returns each key that differs between configurations, with its value in each of them."""
    keys = dict.fromkeys(key for values in settings for key in values)
    columns = {key: [values.get(key, ABSENT) for values in settings] for key in keys}
    return {key: values for key, values in columns.items() if len(set(map(repr, values))) > 1}


def _short(key: str, keys: Sequence[str]) -> str:
    """`agent.actor_lr` -> `actor_lr`, unless another key has the same last part."""
    last = key.rsplit(".", 1)[-1]
    return last if sum(other.rsplit(".", 1)[-1] == last for other in keys) == 1 else key


def show(value: Any) -> str:
    """Formats a value; a node as its class with its arguments."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, dict) and "_target_" in value:
        arguments = ", ".join(f"{key}={show(child)}" for key, child in value.items() if not key.startswith("_"))
        return f"{str(value['_target_']).rpartition('.')[2]}({arguments})"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
