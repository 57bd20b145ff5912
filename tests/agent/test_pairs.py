"""Whole runs of every agent x execution x n-step x number of environments x part, two values at a time.

All combinations would be some 35 000 runs of each agent. This is a covering design: every pair of values
of two factors is in at least one run, or it is refused in one line. A run makes at least 50 updates and resumes from
its middle to the same bytes. Compiled runs take seconds each, so there are as few as their pairs need. `make thorough`
runs all of it.
"""

import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import composed
import probes
import pytest
from parts import AGENTS, PARTS, overrides, table
from runs import assert_same, go_on

Row = dict[str, Any]
Pair = frozenset[tuple[str, Any]]  # two times (factor, value)
SAYS = table()
OWN = "its own"
FACTORS: dict[str, tuple[Any, ...]] = {
    "agent": tuple(dict.fromkeys(name for name, _ in SAYS)),
    "execution": ("eager", "recorded"),
    "n_step": (1, 3),
    "num_envs": (1, 3),
    # Parts that set keys of a network share one factor: each replaces the whole network.
    "network": (OWN, "dropout in the critics", "dropout in the actor", "LayerNorm", "RMSNorm", "BatchNorm"),
    "head": (OWN, "targets of the mean", "quantile head", "categorical head", "Huber head"),
    "observations": (OWN, "normalised observations"),
    "rewards": (OWN, "normalised rewards"),
    "noise": (OWN, "held noise"),
    "decay": (OWN, "weight decay"),
    "average": (OWN, "averaged actor"),
    "rows": (OWN, "prioritised rows", "fading rows"),
}
SHORT = (
    *("env=probes:ProbeDrawn-v0", "num_seed_steps=24", "num_train_steps=75", "updates_per_step=1", "num_threads=1"),
    *("checkpoint_frequency=40", "keep_checkpoints=9", "eval_frequency=1000", "num_eval_episodes=1"),
    *("agent.critic.hidden_depth=1", "agent.actor.hidden_depth=1"),  # deeper ones take longer to record
)


def allowed(row: Row) -> bool:
    """Whether docs/AGENTS_PARTS.md says that the agent goes with these parts."""
    return all(SAYS.get((row.get("agent", ""), part), True) for part in row.values())


def pairs_of(row: Row) -> set[Pair]:
    return {frozenset(two) for two in combinations(row.items(), 2)}


PAIRS = [frozenset(((a, x), (b, y))) for a, b in combinations(FACTORS, 2) for x in FACTORS[a] for y in FACTORS[b]]


def design() -> list[Row]:
    """Returns rows that together contain every allowed pair."""
    uncovered = dict.fromkeys(pair for pair in PAIRS if allowed(dict(pair)))
    rows: list[Row] = []
    while uncovered:
        row = dict(next(iter(uncovered)))
        for factor in sorted((name for name in FACTORS if name not in row), key=lambda name: -len(FACTORS[name])):
            choices = [value for value in FACTORS[factor] if allowed(row | {factor: value})]
            # Each row starts elsewhere, so values that no pair needs vary too.
            choices = choices[len(rows) % len(choices) :] + choices[: len(rows) % len(choices)]
            gains = {value: len(uncovered.keys() & pairs_of(row | {factor: value})) for value in choices}
            row[factor] = max(gains, key=lambda value: gains[value])
        rows.append({factor: row[factor] for factor in FACTORS})
        for pair in pairs_of(row):
            uncovered.pop(pair, None)
    return rows


ROWS = design()
REFUSED = [(name, part) for (name, part), together in SAYS.items() if not together]


# `make test` runs one of them.
QUICK = next(row for row in ROWS if tuple(row.values())[:4] == ("sac", "recorded", 3, 3))


def command_of(row: Row) -> tuple[str, ...]:
    keys = [f"{key}={row[key]}" for key in ("execution", "n_step", "num_envs")]
    # Each pattern of what is due is recorded separately, which takes long: frequencies of 1 leave one.
    own = composed.settings(f"agent={row['agent']}").agent
    keys += [f"agent.{key}=1" for key in own if key.endswith("update_frequency")]
    return (*words_of(row["agent"], *(part for part in row.values() if part in PARTS)), *keys)


def words_of(name: str, *parts: str) -> tuple[str, ...]:
    """The command that trains this agent with these parts in an environment that fits it."""
    images = composed.settings(f"agent={name}").agent["encoder"]
    seen = ("env=probes:ProbeImages-v0", "action_repeat=1") if images else ()
    seen = ("env=probes:ProbeChoices-v0",) if name == "sac_discrete" else seen
    return (*probes.SMALL, *overrides(name, *parts), *SHORT, *seen)


def name_of(row: Row) -> str:
    return "-".join(str(value) for value in row.values() if value != OWN)


def test_every_pair_is_in_a_run_or_is_refused() -> None:
    assert SAYS.keys() == {(name, part) for name in AGENTS for part in PARTS}
    assert {value for values in FACTORS.values() for value in values} >= PARTS.keys()
    in_runs = set().union(*map(pairs_of, ROWS))
    left = [dict(pair) for pair in PAIRS if pair not in in_runs]
    assert {(pair.pop("agent"), *pair.values()) for pair in left} == set(REFUSED)
    assert all(allowed(row) for row in ROWS)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=name_of(row), marks=() if row is QUICK else pytest.mark.thorough) for row in ROWS]
)
def test_it_trains_and_goes_on_to_the_same_bytes(tmp_path: Path, row: Row) -> None:
    straight = probes.train(tmp_path / "straight", *command_of(row))
    assert straight.agent.num_updates >= 50
    cut = shutil.copytree(tmp_path / "straight", tmp_path / "cut")
    shutil.rmtree(cut / f"checkpoints/step_{straight.step}")  # as if the run had been killed on its last step
    (cut / "finished.json").unlink()
    go_on(cut)
    assert_same(cut, tmp_path / "straight")
    if row["execution"] == "recorded":
        probes.train(tmp_path / "eager", *command_of(row | {"execution": "eager"}))
        assert_same(tmp_path / "straight", tmp_path / "eager")
        assert straight.agent.execution._enabled and straight.agent.execution._recordings


@pytest.mark.parametrize(
    ("name", "part"), [REFUSED[0], *(pytest.param(*one, marks=pytest.mark.thorough) for one in REFUSED[1:])]
)
def test_or_it_is_refused_in_one_line(
    name: str, part: str, tmp_path: Path, command: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(*words_of(name, part)) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and said.startswith("train.py: "), said
    assert list(tmp_path.iterdir()) == []
