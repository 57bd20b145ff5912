"""A damaged or forged folder is refused in one line, and nothing around it is changed."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probes
import pytest
import torch
from strangers import Change, refused

from agent.policy_file import load_policy
from run.saving import resume
from run.saving.checkpoint import manifest_checksum
from utils import UserError


def manifest(change: Callable[[dict[str, Any]], Any]) -> Change:
    """Changes the newest manifest, makes its checksum match, and deletes the older checkpoint."""

    def forge(folder: Path) -> None:
        shutil.rmtree(folder / "checkpoints/step_30")
        path = folder / "checkpoints/step_60/manifest.json"
        content = json.loads(path.read_text())["manifest"]
        change(content)
        path.write_text(json.dumps({"sha256": manifest_checksum(content), "manifest": content}))

    return forge


def raw_manifest(text: str) -> Change:
    def forge(folder: Path) -> None:
        shutil.rmtree(folder / "checkpoints/step_30")
        (folder / "checkpoints/step_60/manifest.json").write_text(text)

    return forge


def part(name: str, change: Callable[[Any], Any]) -> Change:
    """Changes a part of the newest checkpoint, and makes the checksums match."""

    def forge(folder: Path) -> None:
        path = folder / f"checkpoints/step_60/{name}.pt"
        state = torch.load(path, weights_only=True)
        state = change(state) or state
        torch.save(state, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        manifest(lambda content: content["parts"].update({name: digest}))(folder)

    return forge


def at(key: str, value: Any) -> Callable[[Any], Any]:
    """Returns a change that sets the value at a path of keys."""

    def change(state: Any) -> None:
        *parents, end = key.split("/")
        for parent in parents:
            state = state[parent]
        state[end] = value

    return change


def link(name: str, to: str = "victim.csv", hard: bool = False) -> Change:
    def replace(folder: Path) -> None:
        path, target = folder / name, folder.parent / to
        if path.is_dir():
            shutil.move(path, folder.parent / "moved")
            target = folder.parent / "moved" if to == "moved" else target
        else:
            path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        os.link(target, path) if hard else path.symlink_to(target)

    return replace


def folder_instead(name: str) -> Change:
    def replace(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return replace


def pipe(name: str) -> Change:
    def replace(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return replace


def as_bytes(name: str, data: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(data) and None


def compressed(folder: Path) -> None:
    """Compresses agent.pt, with zeros that grow a thousandfold when it is read."""
    import zipfile

    path = folder / "checkpoints/step_60/agent.pt"
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in parts.items():
            new.writestr(name, data + bytes(10**6))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest(lambda content: content["parts"].update(agent=digest))(folder)


def vast(name: str) -> Change:
    """Makes a file of a checkpoint a sparse terabyte, and deletes the older checkpoint."""

    def grow(folder: Path) -> None:
        shutil.rmtree(folder / "checkpoints/step_30")
        os.truncate(folder / "checkpoints" / name, 2**40)

    return grow


SEGMENT = {"start": 0, "stop": 60, "sha256": "0"}
FOLDERS: dict[str, tuple[Change, str, bool]] = {  # the change, the message, whether evaluating may still work
    "train.csv is a link": (link("train.csv"), r"train\.csv: a link", False),
    "train.csv is a dangling link": (link("train.csv", "nowhere"), r"train\.csv: a link", False),
    "train.csv has a second name": (link("train.csv", hard=True), r"train\.csv: a file with a second name", False),
    "eval.csv is a link": (link("eval.csv"), r"eval\.csv: a link", False),
    "config.yaml is a link": (link("config.yaml"), r"config\.yaml: a link", False),
    "the lock is a link": (link(".lock"), r"\.lock: a link", False),
    "the lock is a folder": (folder_instead(".lock"), r"\.lock: a folder", True),
    "the lock is a pipe": (pipe(".lock"), r"\.lock: neither a file nor a folder", False),
    "train.csv is a pipe": (pipe("train.csv"), "neither a file nor a folder", False),
    "a manifest is a pipe": (pipe("checkpoints/step_60/manifest.json"), "neither a file nor a folder", False),
    "a manifest is a link": (link("checkpoints/step_60/manifest.json"), "a link", False),
    "agent.pt is a link": (link("checkpoints/step_60/agent.pt"), "a link", False),
    "a segment is a link": (link("checkpoints/buffer/000000000000-000000000030.rows"), "a link", False),
    "the checkpoints are a link": (link("checkpoints", "moved"), "checkpoints: a link", False),
    "the videos are a link": (link("video", "."), "video: a link", False),
    "the events are a link": (link("tb", "."), "tb: a link", False),
    "wandb leads out": (link("wandb/latest-run"), "latest-run: a link", False),
    "config.yaml is a folder": (folder_instead("config.yaml"), r"config\.yaml: cannot be read \(not a file\)", False),
    "a terabyte of settings": (lambda folder: os.truncate(folder / "config.yaml", 2**40), "at most 1,048,576", False),
    "a terabyte of a manifest": (vast("step_60/manifest.json"), "all checkpoints are damaged", False),
    "a terabyte of an agent": (vast("step_60/agent.pt"), "all checkpoints are damaged", False),
    "a terabyte of rows": (vast("buffer/000000000030-000000000060.rows"), "without its replay buffer", True),
    "train.csv is empty": (as_bytes("train.csv", b""), r"train\.csv: 0 bytes, where its checkpoint left", True),
    "train.csv is no text": (as_bytes("train.csv", b"\xff\xfe\x00"), r"train\.csv: cannot be read", True),
    "train.csv is a folder": (folder_instead("train.csv"), r"train\.csv: cannot be read", True),
    "a manifest of a list": (raw_manifest("[1]"), "all checkpoints are damaged", False),
    "a manifest of deep lists": (raw_manifest("[" * 100_000), "all checkpoints are damaged", False),
    "a manifest of text": (raw_manifest('{"sha256": "x", "manifest": "y"}'), "all checkpoints are damaged", False),
    "a manifest without a format": (manifest(lambda it: it.pop("format")), "all checkpoints are damaged", False),
    "a format of text": (manifest(at("format", "2\n2")), "a checkpoint of format 2 2", False),
    "a step of text": (manifest(at("step", "60")), "all checkpoints are damaged", False),
    "a negative step": (manifest(at("step", -60)), "all checkpoints are damaged", False),
    "a step out of range": (manifest(at("step", 10**30)), "all checkpoints are damaged", False),
    "another step": (manifest(at("step", 59)), "all checkpoints are damaged", False),
    "segments of text": (manifest(at("segments", "all")), "all checkpoints are damaged", False),
    "segments of numbers": (manifest(at("segments", [1, 2])), "all checkpoints are damaged", False),
    "a segment with more": (
        manifest(at("segments", [SEGMENT | {"name": "../x"}])),
        "all checkpoints are damaged",
        False,
    ),
    "a segment of text": (
        manifest(at("segments", [SEGMENT | {"start": "../../x"}])),
        "all checkpoints are damaged",
        False,
    ),
    "a segment backwards": (manifest(at("segments", [SEGMENT | {"start": 61}])), "all checkpoints are damaged", False),
    "a segment out of range": (
        manifest(at("segments", [SEGMENT | {"stop": 10**40}])),
        "all checkpoints are damaged",
        False,
    ),
    "segments with a gap": (
        manifest(lambda it: it["segments"][1].update(start=31)),
        "all checkpoints are damaged",
        False,
    ),
    "parts of a list": (manifest(at("parts", [])), "all checkpoints are damaged", False),
    "an identity of text": (manifest(at("identity", "mine")), "all checkpoints are damaged", False),
    "num_added out of range": (part("run", at("replay_buffer/num_added", 10**30)), "does not fit this run", True),
    "num_added too large": (part("run", at("replay_buffer/num_added", 10**9)), "the segments do not hold", True),
    "num_added negative": (part("run", at("replay_buffer/num_added", -5)), "num_added is -5, not a count", True),
    "num_added of text": (part("run", at("replay_buffer/num_added", "6")), "num_added is '6', not a count", True),
    "a counter of text": (part("run", at("progress/episode", "many")), "episode is 'many', not a count", True),
    "another counter's step": (part("run", at("progress/step", 59)), "it is of step 59", True),
    "rewards of more": (part("run", at("progress/episode_reward", [1.0, 2.0])), "episode_reward is not 1", True),
    "an age of text": (part("run", at("progress/episode_age_s", ["x"])), "episode_age_s is not 1", True),
    "a log's end of text": (part("run", at("logger/sinks/csv/bytes/train", "9")), "bytes is '9'", True),
    "a log's negative end": (part("run", at("logger/sinks/csv/bytes/train", -9)), "bytes is -9", True),
    "a meter of text": (part("run", at("logger/meters", {"train/x": ("1", 1)})), "a meter's sum is str", True),
    "an episode of text": (part("run", at("envs/episodes", ["x"])), "does not fit this run", True),
    "generators of text": (part("run", at("random/python", "x")), "does not fit this run", True),
    "a run of a list": (part("run", lambda state: [state]), "does not fit this run", True),
    "a run without its parts": (part("run", lambda state: state.pop("envs") and None), "does not fit this run", True),
    "updates of text": (part("agent", at("num_updates", "9")), "num_updates is '9', not a count", False),
    "an agent of a list": (part("agent", lambda state: [state]), "does not fit this run", False),
    "an agent without its actor": (part("agent", lambda state: state.pop("actor") and None), "does not fit", False),
    "an agent of other shapes": (
        part("agent", lambda state: state["actor"].update({key: torch.zeros(1) for key in state["actor"]})),
        "does not fit this run",
        False,
    ),
    "an agent that grows": (compressed, "agent.pt: cannot be read", False),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_damaged_or_forged_folder_is_one_line(
    copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    change, said, plays = FOLDERS[case]
    change(copied)
    line = refused(copied, monkeypatch, capsys, plays)
    assert re.search(said, line), line


def test_links_within_the_folders_of_tools_that_make_them_are_fine(copied: Path) -> None:
    (copied / "wandb/run-1").mkdir(parents=True)
    (copied / "wandb/latest-run").symlink_to("run-1")
    (copied / "wandb/run-1/debug-core.log").symlink_to("/tmp/a_log_of_wandb")
    assert resume.continuation(copied, []).cfg.seed == 1
    (copied / "wandb/run-1/other.log").symlink_to("/tmp/a_log_of_wandb")
    with pytest.raises(UserError, match=r"other\.log: a link"):
        resume.continuation(copied, [])


def test_an_empty_folder_with_a_link_is_no_run_to_begin(copied: Path, command: Callable[..., int]) -> None:
    mine = copied.parent / "mine"
    mine.mkdir()
    (mine / "train.csv").symlink_to(copied.parent / "new.csv")
    assert command("resume=auto", f"hydra.run.dir={mine}", "env=ProbeTimeLimit-v0", *probes.SMALL) == 2
    assert not (copied.parent / "new.csv").exists() and [path.name for path in mine.iterdir()] == ["train.csv"]


def test_a_forged_end_is_no_end(copied: Path) -> None:
    from run.saving import folder

    path = copied / "finished.json"
    for text in ('{"step": Infinity, "last_return": 1}', "[" * 100_000, '{"step": "x"}', "[]"):
        path.write_text(text)
        assert folder.finished(copied) is None
    os.truncate(path, 2**40)
    assert folder.finished(copied) is None
    path.unlink()
    os.mkfifo(path)
    assert folder.finished(copied) is None and not folder.was_pruned(copied)


def test_a_forged_failure_is_a_failure_without_a_reason(copied: Path) -> None:
    from run.saving import folder

    for text in ("[", "[]", "{}", '{"overrides": 3, "reason": null}', '{"overrides": [1, {}]}'):
        (copied / "failed.json").write_text(text)
        (line,) = folder.new_failures(copied.parent, {})
        assert "\n" not in line and folder.failure(copied) is not None


def test_a_policy_is_held_against_the_manifest_beside_it(copied: Path) -> None:
    path = copied / "checkpoints/step_60/policy.pt"
    load_policy(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"policy\.pt: has changed since manifest\.json beside it was written"):
        load_policy(path)
    (path.parent / "manifest.json").write_text('{"name": "somebody\'s web page"}')
    load_policy(path)
    (path.parent / "manifest.json").write_text("[")
    with pytest.raises(UserError, match=r"cannot be compared with manifest\.json \(JSONDecodeError\)"):
        load_policy(path)
