"""A run from someone else reads data outside its folder only if the user has named them."""

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_datasets
import probes
import pytest
import yaml
from runs import RUN, quoted, run_until

import evaluate
from run.data import sources
from run.saving import trust
from utils import UserError

Command = Callable[..., int]
NUMBERED = ("env=probes:ProbeNumbered-v0", *RUN)


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a data set that belongs to the user."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    return made_datasets.make()


def given(folder: Path, **keys: Any) -> Path:
    """Changes keys of a run's configuration, as someone else might; returns its folder."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | keys, sort_keys=False))
    return folder


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("name", ["made/known-v0", "PRIVATE"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_preloaded_rows_are_read_again_only_where_the_command_names_them(
    tmp_path: Path,
    private: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    share: float,
) -> None:
    name = name.replace("PRIVATE", str(private))
    folder, preload = tmp_path / "run", f"preload=[{quoted(Path(name))}]"
    run_until(folder, 100, *NUMBERED, "save_replay_buffer=false", preload, f"preload_share={share}")
    before = files(folder)
    line = (f"resume={folder}", "trust=probes", "save_replay_buffer=true")
    with monkeypatch.context() as patch:
        patch.setattr(sources, "opened", None)  # opening a data set would fail
        for wrong in ((), ("trust=other/data",), (f"trust={private.parent}",)):
            assert command(*line, *wrong) == 2
            printed = capsys.readouterr().err
            assert "would be read outside of this folder" in printed and printed.count("\n") == 1
            assert shlex.split(printed.partition("if they are yours, add ")[2]) == [preload]
    assert files(folder) == before
    assert command(*line, preload) == 0
    assert "18 transitions" in capsys.readouterr().out


def test_a_path_may_be_trusted_instead(tmp_path: Path, private: Path, command: Command) -> None:
    folder = tmp_path / "run"
    run_until(folder, 100, *NUMBERED, "save_replay_buffer=false")
    given(folder, preload=[str(private)], num_train_steps=120)
    assert command(f"resume={folder}", f"trust=probes,{private}") == 0


def test_rows_in_the_checkpoint_and_data_in_the_folder_need_no_word(
    tmp_path: Path, private: Path, command: Command
) -> None:
    run_until(tmp_path / "saved", 100, *NUMBERED, f"preload={quoted(private)}", "replay_buffer_capacity=200")
    shutil.move(tmp_path / "root", tmp_path / "moved")
    assert command(f"resume={tmp_path / 'saved'}", "trust=probes") == 0
    run_until(tmp_path / "inside", 100, *NUMBERED, "save_replay_buffer=false")
    shutil.move(tmp_path / "moved/made/known-v0", tmp_path / "inside/data")
    given(tmp_path / "inside", preload=[str(tmp_path / "inside/data")])
    assert command(f"resume={tmp_path / 'inside'}", "trust=probes") == 0


def test_a_seed_policy_is_read_in_the_folder_alone(
    tmp_path: Path, copied: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, folder = tmp_path / "private.pt", tmp_path / "begun"
    shutil.copy(copied / "checkpoints/step_60/policy.pt", policy)
    run_until(folder, 100, "env=probes:ProbeTimeLimit-v0", *RUN, f"seed_policy={quoted(policy)}")
    (folder / "seed_policy.pt").unlink()
    line = (f"resume={folder}", "trust=probes")
    assert command(*line) == 2
    printed = capsys.readouterr().err
    assert f"{folder}/seed_policy.pt: missing; it was a copy of seed_policy={policy}" in printed
    assert not (folder / "seed_policy.pt").exists()
    shutil.move(policy, folder / "seed_policy.pt")
    assert command(*line) == 0


def test_a_new_run_keeps_a_copy_of_the_seed_policy_that_it_uses(tmp_path: Path, copied: Path) -> None:
    """Not of one that a start left there which was killed before its first checkpoint."""
    policy, left = copied / "checkpoints/step_60/policy.pt", tmp_path / "new/seed_policy.pt"
    left.parent.mkdir()
    left.write_bytes(b"another")
    probes.train(left.parent, "env=probes:ProbeTimeLimit-v0", *RUN, f"seed_policy={quoted(policy)}")
    assert left.read_bytes() == policy.read_bytes()


@pytest.mark.parametrize("text", ["/home/you/robot.xml", "../robot.xml", "~/robot.xml", "assets/../../robot.xml"])
def test_a_path_for_an_environment_is_asked_for(
    copied: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
) -> None:
    given(copied, env="HalfCheetah-v5", env_kwargs={"xml_file": text})
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(copied), "--no-video"])
    for run, added in ((evaluate.main, "--trust"), (lambda: command(f"resume={copied}"), "trust=")):
        assert run() == 2  # type: ignore[operator]
        printed = capsys.readouterr().err
        assert f"env_kwargs.xml_file={text}: outside of this folder, so it is not read" in printed
        assert added in printed and printed.count("\n") == 1
    for named in ([f"trust={text}"], [f"env_kwargs.xml_file={text}", "env=HalfCheetah-v5"]):
        assert command(f"resume={copied}", *named) == 2
        assert "it is not read" not in capsys.readouterr().err


def test_what_is_in_the_folder_may_be_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    config: dict[str, Any] = {"env_kwargs": {"files": [{"robot": f"{tmp_path}/run/robot.xml"}], "name": "plain.xml"}}
    trust.require(config, tmp_path / "run/config.yaml")
    for wrong in (f"{tmp_path}/run/../robot.xml", f"{tmp_path}/running/robot.xml"):
        config["env_kwargs"]["files"][0]["robot"] = wrong
        with pytest.raises(UserError, match=r"env_kwargs\.files\.0\.robot="):
            trust.require(config, tmp_path / "run/config.yaml")
        trust.require(config, tmp_path / "run/config.yaml", [str(tmp_path / wrong)])
