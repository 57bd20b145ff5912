"""Checkpoints: they are complete and verified, or passed over; only tensors and plain values are loaded."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kills import Killed, killed_after
from strangers import Evil

from replay_buffer import ReplayBuffer
from run import checkpoint
from run.checkpoint import Checkpoints, list_checkpoints, read_newest
from utils import UserError

IDENTITY = {"agent": "sac", "env": "cheetah_run", "obs_dim": 3}


def filled(buffer: ReplayBuffer, until: int) -> ReplayBuffer:
    for i in range(buffer.num_added, until):
        buffer.add(np.full(3, i), np.zeros(2), i, np.full(3, i + 1), False, False)
    return buffer


def new_buffer(capacity: int = 10) -> ReplayBuffer:
    return ReplayBuffer((3,), (2,), capacity, torch.device("cpu"))


def state(value: int) -> dict[str, Any]:
    return {"weights": torch.full((4,), float(value)), "rng": np.random.default_rng(value).bit_generator.state}


def save(folder: Path, *steps: int, keep: int = 2, buffer: ReplayBuffer | None = None) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep, IDENTITY)
    for step in steps:
        rows = None if buffer is None else filled(buffer, step)
        checkpoints.save(step, {"agent": state(step), "run": {"step": step}}, rows)
    return checkpoints


def newest(folder: Path) -> int:
    return read_newest(folder, "agent", "run", identity=IDENTITY, with_rows=True).manifest["step"]


def test_saved_states_are_loaded_and_old_checkpoints_deleted(tmp_path: Path) -> None:
    save(tmp_path, 5, 90, 100)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step_100", "step_90"]
    saved = Checkpoints(tmp_path, 2, IDENTITY).load_newest("agent", "run")
    assert saved.manifest["step"] == 100 and saved.states["run"] == {"step": 100}
    assert torch.equal(saved.states["agent"]["weights"], torch.full((4,), 100.0))
    assert saved.states["agent"]["rng"] == state(100)["rng"]


def test_a_segment_is_written_once_and_deleted_when_no_checkpoint_lists_it(tmp_path: Path) -> None:
    folder, buffer = tmp_path / "checkpoints/buffer", new_buffer(10)
    saver = save(tmp_path, 6, buffer=buffer)
    (first,) = folder.iterdir()
    written = first.stat().st_mtime_ns, first.stat().st_ino
    saver.save(12, {"agent": {}}, filled(buffer, 12))
    assert (first.stat().st_mtime_ns, first.stat().st_ino) == written
    sizes = {path.name: path.stat().st_size // (4 * buffer.row_width) for path in folder.iterdir()}
    assert sizes == {"000000000000-000000000006.rows": 6, "000000000006-000000000012.rows": 6}
    saver.save(16, {"agent": {}}, filled(buffer, 16))  # its ring holds rows 6 to 15, that of step 12 rows 2 to 11
    assert first.exists()
    saver.save(18, {"agent": {}}, filled(buffer, 18))
    assert not first.exists() and newest(tmp_path) == 18


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    {
        "missing": path.unlink,
        "truncated": lambda: path.write_bytes(data[: len(data) // 2]),
        "empty": lambda: path.write_bytes(b""),
        "flipped": lambda: path.write_bytes(data),
    }[how]()


@pytest.mark.parametrize("how", ["missing", "truncated", "empty", "flipped"])
@pytest.mark.parametrize("part", ["step_9/manifest.json", "step_9/run.pt", "buffer/000000000005-000000000009.rows"])
def test_with_a_damaged_file_the_previous_checkpoint_is_used(
    tmp_path: Path, part: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 5, 9, buffer=new_buffer())
    damage(tmp_path / "checkpoints" / part, how)
    if part.endswith("manifest.json") and how == "flipped":  # it has no checksum of its own
        return
    assert newest(tmp_path) == 5
    said = capsys.readouterr().out
    assert "step_9 is damaged" in said and said.count("\n") == 1


def test_no_checkpoint_and_another_runs_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(str(tmp_path))}: there is no checkpoint in it that can be read$"):
        newest(tmp_path)
    save(tmp_path, 5)
    with pytest.raises(UserError, match="step_5: a checkpoint of env=cheetah_run, not of env=other"):
        Checkpoints(tmp_path, 2, IDENTITY | {"env": "other"}).load_newest("agent")


@pytest.mark.parametrize("value", [np.zeros(2), np.float32(1.0), {1, 2}, print])
def test_a_state_that_could_not_be_loaded_is_refused_when_it_is_saved(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UserError, match=r"^state\.run\.buffer\.0: a state_dict holds tensors, numbers"):
        Checkpoints(tmp_path, 2, IDENTITY).save(5, {"run": {"buffer": [value]}})


def test_a_strangers_pickle_runs_no_code(tmp_path: Path, mark: Path) -> None:
    save(tmp_path, 5)
    path = tmp_path / "checkpoints/step_5/agent.pt"
    before = checkpoint.sha256_of(path)
    torch.save({"weights": Evil(mark)}, path)
    manifest = path.with_name("manifest.json")
    manifest.write_text(manifest.read_text().replace(before, checkpoint.sha256_of(path)))
    with pytest.raises(UserError, match="no checkpoint"):
        newest(tmp_path)
    assert not mark.exists()
    torch.load(path, weights_only=False)  # an ordinary loader runs it
    assert mark.exists()


def crash(folder: Path, operations: int) -> bool:
    """Saves step 5 and, killed after this number of changes of the disk, step 9; returns whether it was killed."""
    folder.mkdir()
    buffer = new_buffer(4)
    saver = save(folder, 5, keep=1, buffer=buffer)
    filled(buffer, 9)
    try:
        with killed_after(operations, folder, 0.5):
            saver.save(9, {"agent": state(9), "run": {}}, buffer)
    except Killed:
        return True
    return False


def test_killed_at_any_change_of_the_disk_a_whole_checkpoint_is_there(tmp_path: Path) -> None:
    folders = (tmp_path / str(operations) for operations in itertools.count(1))
    killed = list(itertools.takewhile(lambda folder: crash(folder, int(folder.name)), folders))
    found = [newest(folder) for folder in killed]
    assert found == sorted(found) and set(found) == {5, 9}
    for folder in killed:
        later = Checkpoints(folder, 1, IDENTITY)
        later.load_newest("agent")
        later.save(13, {"agent": state(13), "run": {}}, filled(new_buffer(4), 13))
        left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert left == {
            *(f"checkpoints/step_13/{name}" for name in ("agent.pt", "run.pt", "manifest.json")),
            "checkpoints/buffer/000000000009-000000000013.rows",
        }
