"""A stranger's folder: whatever is in it, continuing and evaluating it runs no code and touches nothing around it."""

import hashlib
import json
import os
import pickle
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probes
import pytest
import torch
import yaml
from runs import RUN

import evaluate
import train
from agent.policy_file import load_policy
from run import manifests, resume, trust
from settings import saved
from utils import UserError

Change = Callable[[Path], None]
EVIL = "{_target_: torch.load, f: EVIL, weights_only: false}"
WRITES = "{_target_: utils.write_atomically, path: MARK, text: x}"


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of 60 steps with two checkpoints and one evaluation, to be copied."""
    folder = tmp_path_factory.mktemp("run") / "run"
    probes.train(folder, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=60", "eval_frequency=60")
    (folder / "finished.json").unlink()  # there is something left to do
    return folder


class Evil:
    """What a pickle can do: leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def copied(small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, beside a pickle that would leave a mark, a module that would, and a file to be left alone."""
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil(tmp_path / "MARK")))
    (tmp_path / "evil_module.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'MARK')!r})\nclass Thing: ...\n")
    (tmp_path / "victim.csv").write_text("precious\n" * 999)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(small_run, tmp_path / "run")


def outside(folder: Path) -> dict[str, Any]:
    """Everything beside the run's folder."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in folder.parent.rglob("*")
        if folder not in (path, *path.parents) and "__pycache__" not in path.parts
    }


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plays: bool) -> str:
    """Both commands are told to work on the folder; returns what the second says in its one line.

    Args:
        plays: whether evaluating may work, since what is wrong concerns training alone.
    """
    before = outside(folder)
    said = ""
    for program, arguments in (
        (evaluate, ["evaluate.py", str(folder), "--no-video"]),
        (train, ["train.py", f"resume={folder}"]),
    ):
        monkeypatch.setattr(sys, "argv", arguments)
        capsys.readouterr()
        code = program.main()  # type: ignore[attr-defined]
        said = capsys.readouterr().err
        if not (plays and program is evaluate):
            assert code == 2, said
            assert said.count("\n") == 1 and "Traceback" not in said
        assert outside(folder) == before
    return said


def settings(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    change(config)
    path.write_text(yaml.safe_dump(config, sort_keys=False))


def put(key: str, text: str) -> Change:
    """Gives a key of config.yaml a value that is written as YAML."""

    def change(folder: Path) -> None:
        text_here = text.replace("EVIL", str(folder.parent / "evil.pkl")).replace("MARK", str(folder.parent / "MARK"))

        def put_in(config: dict[str, Any]) -> None:
            *parents, last = key.split("/")
            for parent in parents:
                config = config[parent]
            config[last] = yaml.safe_load(text_here)

        settings(folder, put_in)

    return change


def written(text: str) -> Change:
    """Replaces `reward_scale: 1.0` by lines as they are, and so with anchors, tags and whatever else YAML has."""

    def change(folder: Path) -> None:
        path = folder / "config.yaml"
        before = path.read_text()
        assert "\nreward_scale: 1.0\n" in before
        here = text.replace("EVIL", str(folder.parent / "evil.pkl")).replace("MARK", str(folder.parent / "MARK"))
        path.write_text(before.replace("\nreward_scale: 1.0\n", f"\n{here}\n", 1))

    return change


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)
)
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
        put("agent/reward_scale", "{_target_: run.folder.Lock, folder: MARK}"),
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
    "in the evaluator": (put("evaluator/_target_", "run.state.SavedRun"), "no class that belongs there"),
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
    "a long file": (written("reward_scale: 1.0\nmore: '" + "x" * 2**20 + "'"), "more than 1,048,576 bytes"),
    "many values": (written("reward_scale: 1.0\nmore: [" + "1," * 60_000 + "]"), "more than 50,000 values"),
    "a deep list": (written("reward_scale: 1.0\nmore: " + "[" * 5000 + "]" * 5000), "40 levels"),
    "a long number": (written("reward_scale: " + "9" * 5000), "cannot be read"),
    "a key that is a number": (put("agent/7", "1"), "agent.'?7'?"),
    "no mapping": (lambda folder: (folder / "config.yaml").write_text("[1, 2]"), "not a run's configuration"),  # type: ignore[dict-item,return-value]
    "no text": (lambda folder: (folder / "config.yaml").write_bytes(b"\xff\xfe\x00"), "cannot be read"),  # type: ignore[dict-item,return-value]
    "an environment's module": (put("env", "evil_module:ProbeTimeLimit-v0"), "env=evil_module:.*trust=evil_module"),
    "an environment's module of Python's": (put("env", "os:ProbeTimeLimit-v0"), "env=os:ProbeTimeLimit-v0: none of"),
    "too wide": (put("agent/critic/hidden_dim", "10000000"), "hidden_dim=10000000, hidden_depth=2: more weights than"),
    "too deep": (put("agent/actor/hidden_depth", "100000000"), "more weights than"),
    "too many critics": (put("agent/critic/num_critics", "100000000"), "more weights than"),
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
    with pytest.raises(Exception):  # noqa: B017  an ordinary loader: what it returns is no matter
        torch.load(copied.parent / "evil.pkl", weights_only=False, pickle_module=pickle)["x"]
    assert (copied.parent / "MARK").exists()


# What is damaged or forged in the folder itself.


def manifest(change: Callable[[dict[str, Any]], Any]) -> Change:
    """Changes and signs the newest manifest, and takes the older checkpoint away."""

    def forge(folder: Path) -> None:
        shutil.rmtree(folder / "checkpoints/step_30")
        path = folder / "checkpoints/step_60/manifest.json"
        content = json.loads(path.read_text())["manifest"]
        change(content)
        path.write_text(json.dumps({"sha256": manifests.signature(content), "manifest": content}))

    return forge


def raw_manifest(text: str) -> Change:
    def forge(folder: Path) -> None:
        shutil.rmtree(folder / "checkpoints/step_30")
        (folder / "checkpoints/step_60/manifest.json").write_text(text)

    return forge


def part(name: str, change: Callable[[Any], Any]) -> Change:
    """Changes a part of the newest checkpoint, and signs that."""

    def forge(folder: Path) -> None:
        path = folder / f"checkpoints/step_60/{name}.pt"
        state = torch.load(path, weights_only=True)
        state = change(state) or state
        torch.save(state, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        manifest(lambda content: content["parts"].update({name: digest}))(folder)

    return forge


def at(key: str, value: Any, last: Any = ...) -> Callable[[Any], Any]:
    """Puts a value where a path of keys leads."""

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
    """A part that grows a thousandfold."""
    import zipfile

    path = folder / "checkpoints/step_60/agent.pt"
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in parts.items():
            new.writestr(name, data + bytes(10**6))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest(lambda content: content["parts"].update(agent=digest))(folder)


SEGMENT = {"start": 0, "stop": 60, "sha256": "0"}
FOLDERS: dict[str, tuple[Change, str, bool]] = {  # the change, what is said of it, whether evaluating may still work
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
    "config.yaml is a folder": (folder_instead("config.yaml"), r"no run's folder", False),
    "train.csv is empty": (as_bytes("train.csv", b""), r"train\.csv: 0 bytes, where its checkpoint left", True),
    "train.csv is no text": (as_bytes("train.csv", b"\xff\xfe\x00"), r"train\.csv: cannot be read", True),
    "train.csv is a folder": (folder_instead("train.csv"), r"train\.csv: cannot be read", True),
    "a manifest of a list": (raw_manifest("[1]"), "no checkpoint there is whole", False),
    "a manifest of deep lists": (raw_manifest("[" * 100_000), "no checkpoint there is whole", False),
    "a manifest of text": (raw_manifest('{"sha256": "x", "manifest": "y"}'), "no checkpoint there is whole", False),
    "a manifest without a format": (manifest(lambda it: it.pop("format")), "no checkpoint there is whole", False),
    "a format of text": (manifest(at("format", "2\n2")), "a checkpoint of format 2 2", False),
    "a step of text": (manifest(at("step", "60")), "no checkpoint there is whole", False),
    "a negative step": (manifest(at("step", -60)), "no checkpoint there is whole", False),
    "a step out of range": (manifest(at("step", 10**30)), "no checkpoint there is whole", False),
    "another step": (manifest(at("step", 59)), "no checkpoint there is whole", False),
    "segments of text": (manifest(at("segments", "all")), "no checkpoint there is whole", False),
    "segments of numbers": (manifest(at("segments", [1, 2])), "no checkpoint there is whole", False),
    "a segment with more": (manifest(at("segments", [SEGMENT | {"name": "../x"}])), "no checkpoint there", False),
    "a segment of text": (manifest(at("segments", [SEGMENT | {"start": "../../x"}])), "no checkpoint there", False),
    "a segment backwards": (manifest(at("segments", [SEGMENT | {"start": 61}])), "no checkpoint there", False),
    "a segment out of range": (manifest(at("segments", [SEGMENT | {"stop": 10**40}])), "no checkpoint there", False),
    "segments with a gap": (
        manifest(lambda it: it["segments"][1].update(start=31)),
        "no checkpoint there is whole",
        False,
    ),
    "parts of a list": (manifest(at("parts", [])), "no checkpoint there is whole", False),
    "an identity of text": (manifest(at("identity", "mine")), "no checkpoint there is whole", False),
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
    assert resume.settings_of(copied, []).seed == 1


def test_an_empty_folder_with_a_link_is_no_run_to_begin(copied: Path, command: Callable[..., int]) -> None:
    mine = copied.parent / "mine"
    mine.mkdir()
    (mine / "train.csv").symlink_to(copied.parent / "new.csv")
    assert command("resume=auto", f"hydra.run.dir={mine}", "env=ProbeTimeLimit-v0", *probes.SMALL) == 2
    assert not (copied.parent / "new.csv").exists() and [path.name for path in mine.iterdir()] == ["train.csv"]


def test_a_forged_end_is_no_end(copied: Path) -> None:
    from run import folder

    for text in ('{"step": Infinity, "last_return": 1}', "[" * 100_000, '{"step": "x"}', "[]"):
        (copied / "finished.json").write_text(text)
        assert folder.finished(copied) is None


# One's own classes.

OWN = """
import gymnasium
import numpy as np
from agent.sac import SACAgent
from replay_buffer import ReplayBuffer
from sinks.sink import Sink

class MyAgent(SACAgent): ...
class MyBuffer(ReplayBuffer): ...
class MySink(Sink): ...

class MyEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}
    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}

def make(**given): ...

gymnasium.register("Mine-v0", MyEnv, max_episode_steps=5)
"""


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_package.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    return "my_package"


def test_ones_own_classes_go_on_and_play_with_a_flag(
    tmp_path: Path,
    own_package: str,
    command: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "run"
    own = (
        *("env=my_package:Mine-v0", "agent._target_=my_package.MyAgent", "replay_buffer._target_=my_package.MyBuffer"),
        "+logger.sinks.mine={_target_: my_package.MySink, _partial_: true}",
    )
    begun = (*own, *probes.SMALL, *RUN, f"hydra.run.dir={folder}", "resume=auto")
    begun = (*begun, "hydra/job_logging=none", "hydra/hydra_logging=none")
    assert command(*begun, "num_train_steps=60") == 0
    capsys.readouterr()
    assert command(f"resume={folder}", "num_train_steps=70") == 2
    assert "if my_package is yours, add trust=my_package" in capsys.readouterr().err
    assert command(f"resume={folder}", "num_train_steps=70", "trust=my_package") == 0
    assert command(*begun, "num_train_steps=80") == 0  # which names them itself
    fewer = [text for text in begun if text not in own]
    assert command(*fewer, "num_train_steps=90") == 2
    assert command(*fewer, "num_train_steps=90", "trust=other,my_package") == 0
    for trusted, code in (([], 2), (["--trust", "other"], 2), (["--trust", "other", "--trust", "my_package"], 0)):
        monkeypatch.setattr(sys, "argv", ["evaluate.py", str(folder), "--no-video", *trusted])
        assert evaluate.main() == code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trust=", "resume=x"], "trust=: the name of a package"),
        (["trust=os", "resume=x"], "trust=os: the name of a package or a module of your own"),
        (["trust=a b", "resume=x"], "trust=a b: the name"),
        (["trust=mine"], "trust=mine: it goes with resume="),
    ],
)
def test_mistakes_in_what_is_trusted(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert command(*arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "target", ["my_package.make", "my_package.np.load", "my_package.gymnasium", "my_package.SACAgent", "my_packages.X"]
)
def test_trust_is_in_classes_that_are_defined_there(own_package: str, target: str) -> None:
    with pytest.raises(UserError, match=r"so it is not run|cannot be imported"):
        trust.require({"agent": {"_target_": target}}, Path("config.yaml"), [own_package])


def test_a_list_of_nodes_is_for_an_own_class_alone(own_package: str) -> None:
    layers = {"layers": [{"_target_": "agent.networks.LayerNorm", "_partial_": True}]}
    trust.require({"agent": {"_target_": "my_package.MyAgent", **layers}}, Path("x"), [own_package])
    with pytest.raises(UserError, match=r"agent\.layers\.0\._target_=.*no class that belongs there"):
        trust.require({"agent": {"_target_": "agent.sac.SACAgent", **layers}}, Path("x"), [own_package])


def test_every_configuration_of_the_projects_own_may_be_continued() -> None:
    import composed

    for path in sorted((Path(__file__).parents[2] / "config/agent").glob("*.yaml")):
        config = composed.settings(f"agent={path.stem}", "log_save_tb=true", "env=Pendulum-v1")
        trust.require({"agent": config.agent, "logger": config.logger, "evaluator": config.evaluator}, path)


# The policy in a checkpoint.


def test_a_policy_is_held_against_the_manifest_beside_it(copied: Path) -> None:
    path = copied / "checkpoints/step_60/policy.pt"
    load_policy(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"policy\.pt: has changed since manifest\.json beside it was written"):
        load_policy(path)
    (path.parent / "manifest.json").write_text("[")
    with pytest.raises(UserError, match=r"cannot be held against manifest\.json \(JSONDecodeError\)"):
        load_policy(path)


def test_a_study_reads_a_strangers_settings_within_limits(copied: Path) -> None:
    from study import runs

    (copied / "config.yaml").write_text(BOMB)
    with pytest.raises(UserError, match="an anchor, an alias or a tag in line 1"):
        runs.load(copied / "config.yaml")
    with pytest.raises(OSError):
        saved.load(copied)
