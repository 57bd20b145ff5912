"""Resuming or evaluating a run with an untrusted configuration executes none of its code."""

import json
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from strangers import BOMB, Change, refused

from settings import plain_yaml
from utils import UserError

EVIL = "{_target_: torch.load, f: EVIL, weights_only: false}"
WRITES = "{_target_: files.writing.write_text, path: MARK, text: x}"


def settings(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    change(config)
    path.write_text(yaml.safe_dump(config, sort_keys=False))


def placed(text: str, folder: Path) -> str:
    """Replaces EVIL and MARK by the paths of the pickle and of the mark, beside the run's folder."""
    for word, name in (("EVIL", "evil.pkl"), ("MARK", "MARK")):
        text = text.replace(word, json.dumps(str(folder.parent / name)))
    return text


def put(key: str, text: str) -> Change:
    """A change that sets a key of config.yaml to a value given as YAML."""

    def change(folder: Path) -> None:
        text_here = placed(text, folder)

        def put_in(config: dict[str, Any]) -> None:
            *parents, last = key.split("/")
            for parent in parents:
                config = config[parent]
            config[last] = yaml.safe_load(text_here)

        settings(folder, put_in)

    return change


def written(text: str) -> Change:
    """A change that replaces `reward_scale: 1.0` by literal YAML, which may have anchors, tags and the like."""

    def change(folder: Path) -> None:
        path = folder / "config.yaml"
        before = path.read_text()
        assert "\nreward_scale: 1.0\n" in before
        path.write_text(before.replace("\nreward_scale: 1.0\n", f"\n{placed(text, folder)}\n", 1))

    return change


CONFIGURATIONS: dict[str, tuple[Change, str]] = {
    "in a list of an argument": (
        put("agent/reward_scale", f"{{_target_: utils.non_finite, name: a, state: [{EVIL}]}}"),
        "no such key|none of this project's|no class that belongs there",
    ),
    "a function of the project": (put("agent/reward_scale", WRITES), "no class that belongs there"),
    "a function where a class is": (
        put("agent/critic/_target_", "agent.networks.mlp.mlp"),
        r"agent\.critic\._target_=.*not a class that is defined there",
    ),
    "a class of the project elsewhere": (
        put("agent/reward_scale", "{_target_: run.saving.folder.Lock, folder: MARK}"),
        "no class that belongs there",
    ),
    "a sink in the agent": (put("agent/reward_scale", "{_target_: sinks.TensorBoardSink}"), "no class that belongs"),
    "a sink in a list": (
        put("logger/sinks/csv/x", "[{_target_: sinks.TensorBoardSink, log_dir: MARK}]"),
        "no class that belongs there",
    ),
    "a sink with a folder": (
        put("logger/sinks/csv", "{_target_: sinks.TensorBoardSink, _partial_: true, log_dir: MARK}"),
        "log_dir=.*comes from the environment and the run",
    ),
    "an own class of the folder's": (put("agent/reward_scale", "{_target_: evil_module.Thing}"), "trust=evil_module"),
    "imported by what the project imports": (
        put("agent/reward_scale", "{_target_: agent.policy_file.torch.load, f: EVIL}"),
        "none of this project's classes",
    ),
    "an attribute of a class": (
        put("agent/reward_scale", "{_target_: agent.schedule.Linear.__init__}"),
        "none of this project's classes",
    ),
    "a name that a module imported": (
        put("agent/reward_scale", "{_target_: agent.actor.Literal}"),
        "not a class that is defined there",
    ),
    "a foreign class that a module imported": (
        put("agent/reward_scale", "{_target_: agent.policy_file.partial, func: x}"),
        "not a class that is defined there",
    ),
    "os.system": (put("agent/critic/_target_", "os.system"), "agent.critic._target_=os.system: none of this project's"),
    "a built-in": (put("reward_scale", "{_target_: builtins.exec, _args_: [x]}"), "no such key"),
    "hydra's own": (put("reward_scale", f"{{_target_: hydra.utils.call, config: {EVIL}}}"), "none of this project's"),
    "at the top": (put("_target_", "os.system"), "none of this project's"),
    "in the logger": (put("logger/_target_", "logging.FileHandler"), "none of this project's"),
    "in the evaluator": (put("evaluator/_target_", "run.saving.state.SavedRun"), "no class that belongs there"),
    "in the buffer": (put("replay_buffer/_target_", "torch.load"), "replay_buffer._target_=torch.load"),
    "in a key that is none": (put("more", f"[[[{EVIL}]]]"), r"more\.0\.0\.0\._target_=torch\.load"),
    "below a class of ours": (
        put("agent/actor/network", f"{{_target_: agent.networks.Residual, _partial_: true, block: {EVIL}}}"),
        r"agent\.actor\.network\.block\._target_",
    ),
    "deep in a node of ours": (
        put("agent/reward_scale", f"{{_target_: agent.schedule.Piecewise, points: [[0, {EVIL}]]}}"),
        r"points\.0\.1\._target_",
    ),
    "positional arguments": (
        put("agent/reward_scale", f"{{_target_: agent.schedule.Linear, _args_: [{EVIL}]}}"),
        r"_args_: a run's settings have no such key",
    ),
    "recursion switched off": (put("agent/critic/_recursive_", "false"), "_recursive_: a run's settings have no such"),
    "another conversion": (put("agent/_convert_", "object"), "_convert_: a run's settings have no such key"),
    "partial by a node": (put("agent/critic/_partial_", EVIL), "_partial_: true or false goes here"),
    "partial by a word": (put("agent/critic/_partial_", "'yes'"), "_partial_: true or false goes here"),
    "a target that is no text": (put("agent/critic/_target_", "[os, system]"), "not the name of a class"),
    "a target with a space": (put("agent/critic/_target_", "'agent.critic .X'"), "not the name of a class"),
    "a relative target": (put("agent/critic/_target_", ".critic.CriticEnsemble"), "not the name of a class"),
    "a target of the environment": (put("agent/critic/_target_", "'${oc.env:HOME}'"), "an interpolation in line"),
    "an interpolated target": (
        written("evil: os\nreward_scale: {_target_: '${evil}.system', command: x}"),
        "an interpolation in line",
    ),
    "an escaped interpolation": (written(r'reward_scale: {_target_: "\x24{oc.env:HOME}"}'), "an interpolation in line"),
    "an interpolated value": (put("experiment", "'${oc.env:HOME}'"), "an interpolation in line"),
    "a resolver of ours": (put("num_threads", "'${runs_at_once:cpu}'"), "an interpolation in line"),
    "an anchor": (written(f"evil: &evil {EVIL}\nreward_scale: *evil"), "an anchor, an alias or a tag"),
    "a merge": (written(f"evil: &evil {EVIL}\nreward_scale: {{<<: *evil}}"), "an anchor, an alias or a tag"),
    "a merge without an anchor": (
        written(f"reward_scale: {{<<: {EVIL}}}"),
        r"reward_scale\._target_=torch\.load: none of this project's",
    ),
    "a Python tag": (
        written("reward_scale: !!python/object/apply:os.mkdir [MARK]"),
        "an anchor, an alias or a tag",
    ),
    "a path's tag": (
        written("reward_scale: !!python/object/apply:pathlib.Path [MARK]"),
        "an anchor, an alias or a tag",
    ),
    "a bomb": (written(BOMB + "\nreward_scale: 1.0"), "an anchor, an alias or a tag"),
    "a long file": (written("reward_scale: 1.0\nmore: '" + "x" * 2**20 + "'"), "at most 1,048,576"),
    "many values": (written("reward_scale: 1.0\nmore: [" + "1," * 60_000 + "]"), "more than 50,000 values"),
    "a deep list": (written("reward_scale: 1.0\nmore: " + "[" * 500 + "]" * 500), "40 levels"),
    "a deeper list": (written("reward_scale: 1.0\nmore: " + "[" * 5000 + "]" * 5000), r"nesting depth, by line \d+\)"),
    "a long number": (written("reward_scale: " + "9" * 5000), "cannot be read"),
    "a key that is a number": (put("agent/7", "1"), "agent.'?7'?"),
    "no mapping": (lambda folder: (folder / "config.yaml").write_text("[1, 2]"), "not a run's configuration"),  # type: ignore[dict-item,return-value]
    "no text": (lambda folder: (folder / "config.yaml").write_bytes(b"\xff\xfe\x00"), "cannot be read"),  # type: ignore[dict-item,return-value]
    "an environment's module": (put("env", "evil_module:ProbeTimeLimit-v0"), "env=evil_module:.*trust=evil_module"),
    "an environment's module of Python's": (put("env", "os:ProbeTimeLimit-v0"), "env=os:ProbeTimeLimit-v0: none of"),
    "a hostile wrapper": (put("env_wrappers", f"[{EVIL}]"), r"env_wrappers\.0\._target_=torch\.load: none of"),
    "a wrapper of Gymnasium's": (
        put("env_wrappers", "[{_target_: gymnasium.wrappers.RecordVideo, _partial_: true, video_folder: MARK}]"),
        r"env_wrappers\.0\._target_=gymnasium\.wrappers\.RecordVideo: none of .*trust=gymnasium",
    ),
    "a wrapper that is ours": (put("env_wrappers", f"[{WRITES}]"), "no class that belongs there, so it is not run"),
    "a wrapper's module": (put("env_wrappers", "[{_target_: evil_module.Thing}]"), "env_wrappers.*trust=evil_module"),
    "a node in a wrapper": (
        put("env_wrappers", f"[{{_target_: gymnasium.Wrapper, env: {EVIL}}}]"),
        r"env_wrappers\.0\._target_=gymnasium\.Wrapper: none",
    ),
    "a node in an argument": (put("env_kwargs", f"{{x: {EVIL}}}"), r"env_kwargs\.x\._target_=torch\.load: none of"),
    "arguments as a node": (put("env_kwargs", EVIL), r"env_kwargs\._target_=torch\.load: none of"),
    "arguments that there are not": (put("env_kwargs", "{x: 1}"), "env_kwargs.x=1: .* has no such argument; there are"),
    "too wide": (put("agent/critic/hidden_dim", "10000000"), "more weights than are saved there"),
    "too deep": (put("agent/actor/hidden_depth", "100000000"), "less than or equal to 1000"),
    "too many critics": (put("agent/critic/num_critics", "100000000"), "less than or equal to 1000"),
    "too many small critics": (
        put(
            "agent/critic",
            "{_target_: agent.critic.CriticEnsemble, _partial_: true, hidden_dim: 1, hidden_depth: 0, "
            "num_critics: 100000000}",
        ),
        "less than or equal to 1000",
    ),
}


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_a_hostile_configuration_is_one_line(
    copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    change, said = CONFIGURATIONS[case]
    change(copied)
    line = refused(copied, monkeypatch, capsys, plays=False)
    assert re.search(said, line), line
    assert not (copied.parent / "MARK").exists() and "evil_module" not in sys.modules


def test_the_pickle_does_leave_a_mark_where_it_is_loaded(copied: Path) -> None:
    with pytest.raises(Exception):  # noqa: B017  an unsafe load: what it raises does not matter
        torch.load(copied.parent / "evil.pkl", weights_only=False, pickle_module=pickle)["x"]
    assert (copied.parent / "MARK").exists()


def test_a_study_reads_a_strangers_settings_within_limits(copied: Path) -> None:
    from study import runs

    (copied / "config.yaml").write_text(BOMB)
    with pytest.raises(UserError, match="an anchor, an alias or a tag in line 1"):
        runs.load(copied / "config.yaml")
    with pytest.raises(UserError, match=r"run: cannot be read \(not a file\)"):
        plain_yaml.load(copied)
