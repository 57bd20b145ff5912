"""provenance.json: what a run was made with, one entry per process."""

import json
import subprocess
from pathlib import Path

import probes
import pytest
import torch
from runs import go_on

from run import provenance

RUN = ("env=ProbeTimeLimit-v0", "num_seed_steps=40", "num_threads=1", "checkpoint_frequency=1000")


def entries(folder: Path) -> list[dict]:
    return json.loads((folder / provenance.FILE).read_text(encoding="utf-8"))


def test_a_continuation_is_added_and_a_killed_process_has_no_end(tmp_path: Path) -> None:
    probes.train(tmp_path, *RUN, "num_train_steps=20")
    go_on(tmp_path, "num_train_steps=30")
    first, second = entries(tmp_path)
    assert (first["from_step"], first["to_step"], second["from_step"], second["to_step"]) == (0, 20, 20, 30)
    assert first["started"] <= first["ended"] <= second["started"] <= second["ended"]
    assert first["packages"]["torch"] == torch.__version__ and first["threads"] == 1
    assert first["processor"] and first["command"] and first["gpu"] is None
    provenance.Provenance(tmp_path, torch.device("cpu"), 30)
    assert entries(tmp_path)[:2] == [first, second] and entries(tmp_path)[2]["ended"] is None


@pytest.mark.parametrize(
    ("before", "now", "changed", "said"),
    [
        ("a" * 40, "b" * 40, False, "The code is of commit bbbbbbbbbb; the run was made with aaaaaaaaaa so far\n"),
        ("a" * 40, "a" * 40, True, "commit aaaaaaaaaa, with uncommitted changes; the run was made with aaaaaaaaaa so"),
        ("a" * 40, "a" * 40, False, ""),
        ("a" * 40, None, None, ""),
        (None, "b" * 40, False, ""),
    ],
)
def test_a_run_that_goes_on_with_other_or_edited_code_says_so(
    before: str | None,
    now: str | None,
    changed: bool | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / provenance.FILE).write_text(json.dumps([{"commit": before}]))
    monkeypatch.setattr(provenance, "find_commit", lambda _: (now, changed))
    provenance.Provenance(tmp_path, torch.device("cpu"), 5)
    printed = capsys.readouterr().out
    assert said in printed and bool(said) == bool(printed)
    assert len(entries(tmp_path)) == 2


def test_the_commit_is_that_of_the_codes_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert provenance.find_commit(tmp_path) == (None, None)
    git("init")
    (tmp_path / "code.py").write_text("")
    git("add", "code.py")
    git("commit", "-m", "code")
    (tmp_path / "notes.txt").write_text("in no commit")
    assert provenance.find_commit(tmp_path) == (git("rev-parse", "HEAD").strip(), False)
    (tmp_path / "installed").mkdir()
    assert provenance.find_commit(tmp_path / "installed") == (None, None)
    (tmp_path / "my_agent.py").write_text("")
    assert provenance.find_commit(tmp_path)[1], "code that is in no commit"
    (tmp_path / "my_agent.py").unlink()
    (tmp_path / "code.py").write_text("changed")
    assert provenance.find_commit(tmp_path)[1]
