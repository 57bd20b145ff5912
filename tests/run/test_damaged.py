"""A damaged run reports what it can continue without, does so on request, and loses nothing else."""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probes
import pytest
import torch
from omegaconf import OmegaConf
from runs import RUN, SILENT, assert_same, die_in, go_on, run_until
from same_run import result, timeless

from run.saving import checkpoint, resume
from train import Workspace
from utils import UserError

ENV = "env=ProbeTimeLimit-v0"
OLDEST = "checkpoints/buffer/000000000000-000000000030.rows"
BUFFER, LOGS = ("replay_buffer",), ("logs",)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed run, which tests only read."""
    return probes.train(tmp_path_factory.mktemp("straight"), ENV, *RUN).work_dir


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same run killed at step 100, with checkpoints of steps 60 and 90; tests copy it."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    run_until(folder, 100, ENV, *RUN)
    return folder


@pytest.fixture
def copied(killed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed, tmp_path / "a run")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Returns the bytes of all files but the lock, by name."""
    found = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)): data for path, data in found.items() if path.name != ".lock"}


def state_of(folder: Path, step: int) -> dict[str, Any]:
    return torch.load(folder / f"checkpoints/step_{step}/run.pt", weights_only=True)


@pytest.mark.parametrize("damage", [flip, Path.unlink], ids=["changed", "missing"])
def test_without_its_damaged_buffer_a_run_collects_before_it_learns_on(
    copied: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(copied / OLDEST)
    before = contents(copied)
    with pytest.raises(UserError) as refused:
        go_on(copied)
    assert str(refused.value).startswith(
        f"{copied}: all checkpoints are damaged; {shlex.quote(f'resume={copied}')} resume_without=replay_buffer goes "
        "on from step_90 "
    )
    assert contents(copied) == before

    left = {path.name: path.read_bytes() for path in (copied / "checkpoints/buffer").iterdir()}
    capsys.readouterr()
    continued = go_on(copied, without=BUFFER)
    said = capsys.readouterr().out
    assert re.search(rf"step_90: buffer/{Path(OLDEST).name}.*; going on without the replay buffer\n", said)
    assert f"{copied / 'checkpoints/buffer'}: what is left of it is kept as buffer.lost\n" in said
    assert continued.step == 160 and continued.replay_buffer.num_added == 70
    assert continued.agent.num_updates == 50 + 30  # 40 of the 70 steps came before the next update
    assert {path.name: path.read_bytes() for path in (copied / "checkpoints/buffer.lost").iterdir()} == left


def test_afterwards_the_run_is_undamaged_and_the_key_is_not_saved(copied: Path, straight: Path) -> None:
    flip(copied / OLDEST)
    go_on(copied, without=BUFFER)
    assert timeless(copied / "eval.csv")[0] == timeless(straight / "eval.csv")[0]
    assert [row[1] for row in timeless(copied / "train.csv")] == [row[1] for row in timeless(straight / "train.csv")]
    assert "resume_without" not in OmegaConf.load(copied / "config.yaml")
    assert go_on(copied, "num_train_steps=190").replay_buffer.num_added == 100
    assert len(result(copied)["buffer"]) == 100 * 4 * state_of(copied, 190)["replay_buffer"]["row_width"]


def test_a_buffer_in_one_file_can_be_left_out_too(tmp_path: Path) -> None:
    own = ("replay_buffer._target_=own_buffers.ListBuffer", "~replay_buffer.capacity")
    run_until(tmp_path, 100, ENV, *RUN, *own, "~replay_buffer.with_replacement")
    for step in (60, 90):
        flip(tmp_path / f"checkpoints/step_{step}/replay_buffer.pt")
    with pytest.raises(UserError, match="resume_without=replay_buffer goes on from step_90"):
        go_on(tmp_path)
    continued = go_on(tmp_path, without=BUFFER)
    assert continued.replay_buffer.num_added == 70 and continued.agent.num_updates == 50 + 30
    assert not (tmp_path / "checkpoints/buffer.lost").exists()


def test_the_newest_weights_win_over_an_older_buffer_with_the_key_alone(killed: Path, tmp_path: Path) -> None:
    for name, without, num_added in (("without", (), 160), ("with", BUFFER, 70)):
        folder = shutil.copytree(killed, tmp_path / name)
        flip(folder / "checkpoints/buffer/000000000060-000000000090.rows")
        again = Workspace(resume.continuation(folder, []).cfg, folder, resume=True, without=without)
        again.close()
        assert again.step == (90 if without else 60)
        assert go_on(folder, without=without).replay_buffer.num_added == num_added


def test_weights_that_are_damaged_are_not_offered(copied: Path) -> None:
    flip(copied / OLDEST)
    flip(copied / "checkpoints/step_90/agent.pt")
    with pytest.raises(UserError, match="goes on from step_60 without"):
        go_on(copied)
    flip(copied / "checkpoints/step_60/run.pt")
    for without in ((), BUFFER):
        with pytest.raises(UserError, match=rf"^{re.escape(str(copied))}: all checkpoints are damaged$"):
            go_on(copied, without=without)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def zeros(path: Path) -> None:
    """Leaves what a power cut does if only the file's length was written."""
    path.write_bytes(bytes(path.stat().st_size))


def not_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" * path.stat().st_size)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def another_header(path: Path) -> None:
    path.write_text(path.read_text().replace("episode", "EPISODE", 1))


def another_run(path: Path) -> None:
    """Makes the rows longer, so that the checkpoint's end falls within a row."""
    path.write_text(path.read_text().replace(",", ",1"))
    header, rest = path.read_text().split("\n", 1)
    path.write_text(header.replace(",1", ",") + "\n" + rest)


DAMAGE = {
    "missing": (Path.unlink, r"missing, where its checkpoint left \d+ bytes"),
    "shortened": (shortened, r"20 bytes, where its checkpoint left \d+"),
    "zeros": (zeros, "not what its checkpoint left"),
    "another header": (another_header, "not what its checkpoint left"),
    "another": (another_run, "not what its checkpoint left"),
    "no text": (not_text, "cannot be read"),
    "a folder": (a_folder, "cannot be read"),
}


@pytest.mark.parametrize(
    ("damage", "log"),
    [
        *((damage, "train.csv") for damage in DAMAGE),
        *(
            pytest.param(damage, "eval.csv", marks=() if damage in ("missing", "another") else pytest.mark.thorough)
            for damage in DAMAGE
        ),
    ],
)
def test_without_a_damaged_log_a_new_one_begins(
    copied: Path, straight: Path, capsys: pytest.CaptureFixture[str], damage: str, log: str
) -> None:
    change, wrong = DAMAGE[damage]
    change(copied / log)
    before = contents(copied)
    offer = re.escape(f"{shlex.quote(f'resume={copied}')} resume_without=logs goes on with new files")
    place = re.escape(str(copied / log))
    with pytest.raises(UserError, match=rf"^{place}: {wrong}.*; {offer}"):
        go_on(copied)
    assert contents(copied) == before

    go_on(copied, without=LOGS)
    said = capsys.readouterr().out
    assert re.search(rf"{place}: {wrong}.*; going on with new files\n", said)
    header, *rows = timeless(straight / log)
    step = header.index("step")
    assert timeless(copied / log) == [header, *(row for row in rows if int(row[step]) > 90)]
    other = "eval.csv" if log == "train.csv" else "train.csv"
    assert timeless(copied / other) == timeless(straight / other)
    aside = copied / f"{log}.lost"
    if damage == "missing":
        assert not aside.exists()
    else:
        assert f"{copied / log}: what is left of it is kept as {log}.lost\n" in said
        assert aside.is_dir() if damage == "a folder" else aside.read_bytes() == before[log]
    for part in ("weights", "buffer", "state", "progress"):
        assert str(result(copied)[part]) == str(result(straight)[part])


def test_event_files_are_not_asked_for(tmp_path: Path) -> None:
    run_until(tmp_path, 40, ENV, *RUN, "log_save_tb=true", "num_train_steps=50")
    shutil.rmtree(tmp_path / "tb")
    assert go_on(tmp_path).step == 50
    assert len(list((tmp_path / "tb").iterdir())) == 1


def test_each_line_names_all_that_would_help(copied: Path) -> None:
    flip(copied / OLDEST)
    (copied / "train.csv").unlink()
    (copied / "eval.csv").unlink()
    for without, value in (((), "replay_buffer"), (LOGS, "replay_buffer,logs"), (BUFFER, "replay_buffer,logs")):
        with pytest.raises(UserError, match=f" resume_without={value} goes on"):
            go_on(copied, without=without)
    assert go_on(copied, without=(*BUFFER, *LOGS)).agent.num_updates == 50 + 30
    assert timeless(copied / "train.csv")[1][1] == "95"


def test_a_key_that_is_not_needed_changes_nothing(
    copied: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go_on(copied, without=(*BUFFER, *LOGS))
    assert_same(copied, straight)
    said = capsys.readouterr().out
    for part in (*BUFFER, *LOGS):
        assert f"resume_without={part}: not needed, as nothing of it is damaged\n" in said
    assert not list(copied.rglob("*.lost*"))


def test_stopped_before_the_next_checkpoint_the_key_works_again(copied: Path) -> None:
    flip(copied / OLDEST)
    shortened(copied / "train.csv")
    left = contents(copied)
    (copied / "finished.json").write_text('{"step": 90, "last_return": 1.0}')
    again = Workspace(resume.continuation(copied, []).cfg, copied, resume=True, without=(*BUFFER, *LOGS))
    die_in(again, 106)
    assert not (copied / "finished.json").exists()
    rows = (copied / "train.csv").read_bytes()
    with pytest.raises(UserError, match="resume_without=replay_buffer goes on from step_90"):
        go_on(copied)
    go_on(copied, without=(*BUFFER, *LOGS))
    assert (copied / "train.csv.lost").read_bytes() == left["train.csv"]
    assert (copied / "train.csv.lost_2").read_bytes() == rows
    assert (copied / "checkpoints/buffer.lost" / Path(OLDEST).name).read_bytes() == left[OLDEST]
    assert go_on(copied, "num_train_steps=170").step == 170


@pytest.mark.parametrize("what", ["envs", "random", "eval.csv"])
def test_what_cannot_be_restored_is_left_as_it_is(copied: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The logs have rows from after the checkpoint, which are removed only once everything else has been loaded."""
    (copied / "finished.json").write_text('{"step": 100, "last_return": 1.0}')
    before = contents(copied)
    if what == "eval.csv":
        (copied / what).unlink()
        del before[what]
    else:
        load = checkpoint.Checkpoint.load
        damaged = {"run": {what: {"python": "x", "episodes": ["x"]}}}
        monkeypatch.setattr(
            checkpoint.Checkpoint, "load", lambda found, part: load(found, part) | damaged.get(part, {})
        )
    with pytest.raises(UserError, match=r"eval\.csv: missing" if what == "eval.csv" else "does not fit this run"):
        go_on(copied, without=BUFFER)
    assert contents(copied) == before


def test_the_command_line_goes_on_without(copied: Path, command: Callable[..., int], capsys: Any) -> None:
    flip(copied / OLDEST)
    (copied / "train.csv").unlink()
    assert command(f"resume={copied}") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    given = re.search(r"resume_without=\S+", said)
    assert given and command(f"resume={copied}", given[0]) == 2
    words = shlex.split(capsys.readouterr().err.partition("; ")[2])  # as if pasted into a shell
    assert [word.partition("=")[0] for word in words[:2]] == ["resume", "resume_without"]
    assert command(*words[:2]) == 0
    assert command(f"resume={copied}", "num_train_steps=170", "resume_without=[replay_buffer,logs]") == 0
    assert capsys.readouterr().out.count("not needed") == 2


SHORT = (ENV, *probes.SMALL, "num_train_steps=20", *SILENT)  # short, in case it begins by mistake


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["resume=x", "resume_without="],
            "resume_without=: replay_buffer, logs or both (replay_buffer,logs) goes here",
        ),
        (["resume=x", "resume_without=weights"], "resume_without=weights: replay_buffer, logs or both"),
        (["resume=x", "resume_without=logs,,"], "resume_without=logs,,: replay_buffer, logs or both"),
        (["resume_without=logs", *SHORT], "resume_without=logs: it goes with resume=<folder>"),
        (["resume=auto", "hydra.run.dir=x", "resume_without=replay_buffer", *SHORT], "it goes with resume=<folder>"),
        (["resume=nowhere", "resume_without=logs"], "no run's folder"),
    ],
)
def test_mistakes_in_what_to_go_on_without(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert command(*arguments) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
