"""A checkpoint that cannot be written: the previous one stays, and the error is reported."""

import errno
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import MINE, filled, names, new_buffer, no_policy, save, state

from files import writing
from files.tensors import save_plain
from replay import on_disk
from run.saving import checkpoint, checkpoint_writer
from run.saving.checkpoint import MANIFEST, newest_intact
from run.saving.checkpoint_writer import CheckpointWriter


def test_a_full_disk_is_an_os_error_whoever_writes(tmp_path: Path) -> None:
    def policy(path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("PytorchStreamWriter failed\nstack")

    saver = save(tmp_path, 5)
    with pytest.raises(OSError, match=r"PytorchStreamWriter failed$") as caught:
        saver.save(9, {"agent": {}}, policy, None)
    assert caught.value.errno == errno.EIO
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["buffer", "step_5"]


@pytest.mark.parametrize("crash_at", ["extend", "_write_state", "manifest_checksum", "sync", "replace", "rename"])
def test_a_crash_while_writing_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: str
) -> None:
    buffer = new_buffer()
    saver = save(tmp_path, 5, buffer=buffer)

    def crash(*arguments: Any) -> None:
        if crash_at != "sync" or arguments[0].name == MANIFEST:
            raise KeyboardInterrupt

    # Nothing is cleaned up, as after SIGKILL.
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(writing.NewFile, "discard", lambda new: new.stream.close())
    places = {"extend": on_disk, "replace": Path, "rename": Path, "manifest_checksum": checkpoint, "sync": writing}
    monkeypatch.setattr(places.get(crash_at, checkpoint_writer), crash_at, crash)
    with pytest.raises(KeyboardInterrupt):
        saver.save(9, {"agent": state(9)}, no_policy, filled(buffer, 9))
    monkeypatch.undo()
    found, broken = newest_intact(tmp_path, "agent", "run", buffer=True)
    assert found.step == 5 and not broken
    assert len(list((tmp_path / "checkpoints").rglob(".*.part*"))) == (crash_at != "extend")
    later = CheckpointWriter(tmp_path, 2, MINE, found)
    later.save(9, {"agent": state(9)}, no_policy, buffer)
    assert names(tmp_path) == ["step_9", "step_5"]
    left = {path.name for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()}
    assert left == {
        *("manifest.json", "agent.pt", "run.pt"),
        *("000000000000-000000000005.rows", "000000000005-000000000009.rows"),
    }


def test_a_deleted_folder_is_not_made_again(tmp_path: Path) -> None:
    saver = save(tmp_path / "run", keep=2)
    with pytest.raises(FileNotFoundError) as caught:
        saver.save(5, {"agent": {}}, no_policy, None)
    assert caught.value.filename == str(tmp_path / "run/checkpoints")  # not an error of the clean-up
    assert not (tmp_path / "run").exists()


def test_checkpoints_that_cannot_be_deleted_are_deleted_after_the_next(tmp_path: Path) -> None:
    saver = save(tmp_path, 5, keep=1, buffer=new_buffer())
    (tmp_path / "checkpoints/.step_3.gone").write_text("a file is no folder, and stays")
    gone = tmp_path / "checkpoints/buffer/000000000000-000000000005.rows"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saver, "_remove_old", raises(OSError(errno.EIO, "no")))
        saver.save(9, {"agent": {}}, no_policy, None)
    assert names(tmp_path) == ["step_9", "step_5"] and saver.last_step == 9 and gone.exists()
    saver.save(13, {"agent": {}}, no_policy, None)
    assert names(tmp_path) == ["step_13"] and not gone.exists()


def test_what_a_killed_process_was_deleting_is_in_nobodys_way(tmp_path: Path) -> None:
    save(tmp_path, 5, keep=1)
    for step in (5, 9):
        (tmp_path / f"checkpoints/.step_{step}.gone").mkdir()
        (tmp_path / f"checkpoints/.step_{step}.gone/agent.pt").write_text("half")
    (tmp_path / "checkpoints/step_5").rename(tmp_path / "checkpoints/step_9")  # damaged: it is of another step
    save(tmp_path, 9, 13, keep=1)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["buffer", "step_13"]


def raises(error: Exception) -> Callable[..., None]:
    def function(*_: Any) -> None:
        raise error

    return function


class FullForAWhile(io.BytesIO):
    """A file whose large writes fail, though closing it raises no error."""

    def write(self, data: Any) -> int:
        if len(data) > 1000:
            raise OSError(errno.ENOSPC, "no space")
        return super().write(data)


def test_an_error_of_the_disk_is_not_hidden_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="no space"):
        save_plain({"weights": torch.zeros(1000)}, FullForAWhile())
    monkeypatch.setattr(torch, "save", raises(RuntimeError("torch's own")))
    with pytest.raises(RuntimeError, match="torch's own"):
        save_plain({}, io.BytesIO())
