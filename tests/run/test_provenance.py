"""provenance.json: what a run was made with, one entry per process."""

import json
import shutil
import subprocess
from pathlib import Path

import probes
import pytest
import torch
from made_runs import make_run
from runs import go_on

from run import provenance
from study import report, runs
from study.summary import summarise

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
    ("before", "now", "said"),
    [
        ("a" * 40, "b" * 40, "The code is of commit bbbbbbbbbb; the run was made with aaaaaaaaaa so far\n"),
        ("a" * 40, "a" * 40, ""),
        ("a" * 40, None, ""),
        (None, "b" * 40, ""),
        ("\x1b[2J", "b" * 40, ""),
    ],
)
def test_a_run_that_goes_on_with_code_of_another_commit_says_so(
    before: str | None,
    now: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / provenance.FILE).write_text(json.dumps([{"commit": before}]))
    monkeypatch.setattr(provenance, "_commit", lambda _: {"commit": now, "changed": False})
    provenance.Provenance(tmp_path, torch.device("cpu"), 5)
    assert capsys.readouterr().out == said
    assert len(entries(tmp_path)) == 2


@pytest.mark.parametrize("text", ["", "[1, 2", '{"a": 1}', "[" * 100_000])
def test_a_damaged_file_begins_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / provenance.FILE).write_text(text)
    provenance.Provenance(tmp_path, torch.device("cpu"), 0).end(5)
    assert [entry["to_step"] for entry in entries(tmp_path)] == [5]


def test_the_commit_is_that_of_the_code_and_only_where_git_tracks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert provenance._commit(tmp_path) == {"commit": None, "changed": None}
    (tmp_path / "run").mkdir()
    shutil.copy(provenance.__file__, tmp_path / "run")
    git("init")
    git("commit", "--allow-empty", "-m", "no code in it")
    assert provenance._commit(tmp_path)["commit"] is None, "another repository, which holds an installed copy"
    git("add", "run")
    git("commit", "-m", "code")
    (tmp_path / "notes.txt").write_text("not tracked")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    commit = provenance._commit(tmp_path)
    monkeypatch.delenv("GIT_DIR")
    assert commit == {"commit": git("rev-parse", "HEAD").strip(), "changed": False}
    (tmp_path / "out/seed-1").mkdir(parents=True)
    (tmp_path / "out/seed-1/config.yaml").write_text("")
    assert not provenance._commit(tmp_path)["changed"], "a run's folder"
    for name in ("run/my_agent.py", "größe.yaml"):
        (tmp_path / name).write_text("")
        assert provenance._commit(tmp_path)["changed"], "code that is in no commit"
        (tmp_path / name).unlink()
    (tmp_path / "run/provenance.py").write_text("changed")
    assert provenance._commit(tmp_path)["changed"]


def test_the_report_shows_it_and_a_forged_one_does_no_harm(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        make_run(tmp_path / name, [(100, 1.0)], seed=seed)
    entry = {"commit": "0123456789abcdef", "changed": True, "command": ["python", "train.py", "env_kwargs={a: <b>}"]}
    (tmp_path / "a" / provenance.FILE).write_text(json.dumps([entry | {"packages": {"torch": "2.13"}}]))
    (tmp_path / "b" / provenance.FILE).write_text(json.dumps([3, {"command": 3, "packages": [], "commit": "<script>"}]))
    page = report.html(summarise(runs.find([str(tmp_path)]), with_references=False))
    assert "0123456789, changed" in page and "torch 2.13" in page
    assert "python train.py &#x27;env_kwargs={a: &lt;b&gt;}&#x27;" in page and "<script>," not in page
