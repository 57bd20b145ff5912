"""Written files and folders are whole or not there, and nothing else changes."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs import ROOT

from files import writing
from files.writing import NewFile, append_file, make_folder, new_folder, remove_folder, truncate, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "given").mkdir()
    for name, link in (("soft", os.symlink), ("hard", os.link)):
        link(tmp_path / "mine", tmp_path / "given" / name)
        write_text(tmp_path / "given" / name, "new")
        assert (tmp_path / "given" / name).read_text() == "new"
    assert (tmp_path / "mine").read_text() == "precious" and names(tmp_path / "given") == ["hard", "soft"]


@pytest.mark.parametrize("fails", ["block", "fsync", "replace"])
def test_what_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.json"
    write_text(path, "old")
    if fails != "block":
        monkeypatch.setattr(*((os, "fsync") if fails == "fsync" else (Path, "replace")), full)
    with pytest.raises(OSError, match="No space"), NewFile(path) as file:
        file.write(b"half")
        if fails == "block":
            full()
    assert path.read_text() == "old" and names(tmp_path) == ["a.json"]


def test_a_folder_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(OSError, match="not a file"):
            write_text(tmp_path / name, "x")
    with pytest.raises(FileNotFoundError) as missing:
        write_text(tmp_path / "gone/a", "x")
    assert missing.value.filename == str(tmp_path / "gone/a") and names(tmp_path) == ["folder", "pipe"]


KILLED = """
import os, signal, sys
from pathlib import Path
from files.writing import NewFile, new_folder
with NewFile(Path("a.csv")) as file, new_folder(Path("data")) as folder:
    file.write(b"half")
    file.flush()
    (folder / "half").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        command = [sys.executable, "-c", KILLED]
        killed = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert len(names(tmp_path)) == 2  # the second process deleted what the first had left
    write_text(tmp_path / "a.csv", "whole")
    with new_folder(tmp_path / "data") as folder:
        (folder / "whole").touch()
    assert names(tmp_path) == ["a.csv", "data"] and names(tmp_path / "data") == ["whole"]


def test_two_that_write_one_name_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with NewFile(path) as first:
        first.write(b"first")
        with NewFile(path) as second:
            second.write(b"second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and names(tmp_path) == ["a.csv"]
    with pytest.raises(OSError), new_folder(tmp_path / "data") as slow:
        (slow / "slow").touch()
        with new_folder(tmp_path / "data") as fast:
            (fast / "fast").touch()
    assert names(tmp_path) == ["a.csv", "data"] and names(tmp_path / "data") == ["fast"]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_part_that_is_taken_for_abandoned_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    lock, taken = writing.lock, []

    def late(descriptor: int) -> None:
        if not taken:  # another process gets there first
            taken.extend(tmp_path.glob(".a.*"))
            if not is_deleted:
                raise BlockingIOError(errno.EAGAIN, "locked")
            taken[0].unlink()
        lock(descriptor)

    monkeypatch.setattr(writing, "lock", late)
    write_text(tmp_path / "a", "whole")
    taken[0].unlink(missing_ok=True)
    assert names(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "whole"


def test_without_locks_files_are_written_and_parts_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(writing, "lock", none)
    (tmp_path / ".a.01234567.part").touch()  # another process may be writing it
    write_text(tmp_path / "a", "x")
    assert names(tmp_path) == [".a.01234567.part", "a"]


def test_a_prepared_part_is_neither_followed_nor_waited_for(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/kept").touch()
    os.mkfifo(tmp_path / ".a.00000000.part")
    (tmp_path / ".a.00000001.part").symlink_to(tmp_path / "mine")
    (tmp_path / ".a.00000002.part").symlink_to(tmp_path / "folder")
    os.link(tmp_path / "mine", tmp_path / ".a.00000003.part")
    write_text(tmp_path / "a", "x")
    assert (tmp_path / "mine").read_text() == "precious" and (tmp_path / "folder/kept").exists()


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_folder(tmp_path / "data") as folder:
        (folder / "half").touch()
        assert not (tmp_path / "data").exists()
        raise RuntimeError
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError) as missing, new_folder(tmp_path / "gone/data"):
        pass
    assert missing.value.filename == str(tmp_path / "gone/data")


def test_logs_are_written_at_their_end_and_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "soft").symlink_to(tmp_path / "mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.link(tmp_path / "mine", tmp_path / "hard")
    os.mkfifo(tmp_path / "pipe")
    for name in ("soft", "hard", "dangling", "pipe"):
        with pytest.raises(OSError):
            append_file(tmp_path / name)
        with pytest.raises(OSError):
            truncate(tmp_path / name, 0)
    assert (tmp_path / "mine").read_text() == "precious" and not (tmp_path / "nowhere").exists()
    for text in (b"one", b"two"):
        with append_file(tmp_path / "log") as file:
            file.write(text)
    truncate(tmp_path / "log", 5)
    assert (tmp_path / "log").read_text() == "onetw"


def test_a_folder_is_made_and_removed_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "study").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="a link"):
        make_folder(tmp_path / "study")
    with pytest.raises(FileNotFoundError):
        make_folder(tmp_path / "gone/study")
    for _ in range(2):
        make_folder(tmp_path / "new")
    (tmp_path / "new/link").symlink_to(tmp_path / "mine")
    remove_folder(tmp_path / "new")
    assert names(tmp_path) == ["mine", "study"]
