"""Reading checkpoints: they are complete and verified, or refused; only tensors and plain values are loaded."""

import os
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import MINE, filled, names, new_buffer, no_policy, save, state

from run.saving import checkpoint
from run.saving.checkpoint import BrokenError, Checkpoint, newest_intact
from run.saving.checkpoint_writer import CheckpointWriter
from utils import UserError


def test_saved_states_are_loaded_and_old_checkpoints_deleted(tmp_path: Path) -> None:
    save(tmp_path, 5, 90, 100)
    assert names(tmp_path) == ["step_100", "step_90"]
    found, broken = newest_intact(tmp_path, "agent", "run", identity=MINE)
    assert (found.step, broken, found.load("run")) == (100, [], {"step": 100})
    assert torch.equal(found.load("agent")["weights"], torch.full((4,), 100.0))
    assert found.load("agent")["rng"] == state(100)["rng"]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["buffer", "step_100", "step_90"]
    assert CheckpointWriter(tmp_path, 2, MINE).last_step is None
    assert CheckpointWriter(tmp_path, 2, MINE, found).last_step == 100


@pytest.mark.parametrize(("capacity", "steps"), [(10, (4, 9)), (10, (4, 7, 13, 37)), (10, (3, 30, 31)), (1, (1, 2, 5))])
def test_a_ring_is_restored_from_its_segments(tmp_path: Path, capacity: int, steps: tuple[int, ...]) -> None:
    buffer = new_buffer(capacity)
    save(tmp_path, *steps, buffer=buffer)
    found, _ = newest_intact(tmp_path, "agent", buffer=True)
    other = new_buffer(capacity)
    found.load_rows(other, buffer.state_dict())
    np.testing.assert_array_equal(other.rows, buffer.rows)


def test_a_segment_is_written_once_and_deleted_when_no_checkpoint_lists_it(tmp_path: Path) -> None:
    folder, buffer = tmp_path / "checkpoints/buffer", new_buffer(10)
    saver = save(tmp_path, 6, buffer=buffer)
    (first,) = folder.iterdir()
    written = first.stat().st_mtime_ns, first.stat().st_ino
    saver.save(12, {"agent": {}}, no_policy, filled(buffer, 12))
    assert (first.stat().st_mtime_ns, first.stat().st_ino) == written
    row_bytes = 4 * buffer.row_width
    assert {path.name[:25]: path.stat().st_size // row_bytes for path in folder.iterdir()} == {
        "000000000000-000000000006": 6,
        "000000000006-000000000012": 6,
    }
    saver.save(
        16, {"agent": {}}, no_policy, filled(buffer, 16)
    )  # the ring holds rows 6 to 15, but step 12's checkpoint needs rows 2 to 11
    assert first.exists()
    saver.save(18, {"agent": {}}, no_policy, filled(buffer, 18))
    assert not first.exists()
    newest_intact(tmp_path, "agent", buffer=True)


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["missing", "truncated", "empty", "flipped"])
@pytest.mark.parametrize(
    "part", ["step_9/manifest.json", "step_9/agent.pt", "step_9/run.pt", "buffer/000000000005-000000000009.rows"]
)
def test_with_a_damaged_file_the_previous_checkpoint_is_used(
    tmp_path: Path, part: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 5, 9, buffer=new_buffer())
    damage(tmp_path / "checkpoints" / part, how)
    found, broken = newest_intact(tmp_path, "agent", "run", buffer=True)
    assert found.step == 5 and [path.name for path in broken] == ["step_9"]
    said = capsys.readouterr().out
    assert "step_9" in said and Path(part).name in said and said.count("\n") == 1


def test_no_checkpoint_and_only_damaged_ones_are_reported(tmp_path: Path) -> None:
    folder = re.escape(str(tmp_path))
    with pytest.raises(UserError, match=f"^{folder}: there is no checkpoint in it$"):
        newest_intact(tmp_path, "agent")
    save(tmp_path, 5)
    damage(tmp_path / "checkpoints/step_5/agent.pt", "flipped")
    with pytest.raises(UserError, match=f"^{folder}: all checkpoints are damaged$"):
        newest_intact(tmp_path, "agent")


def test_a_damaged_checkpoint_is_replaced_and_not_counted(tmp_path: Path) -> None:
    buffer = new_buffer()
    save(tmp_path, 5, 9, buffer=buffer)
    damage(tmp_path / "checkpoints/step_9/agent.pt", "flipped")
    found, broken = newest_intact(tmp_path, "agent")
    again, rows = CheckpointWriter(tmp_path, 2, MINE, found, broken), new_buffer()
    found.load_rows(rows, {"num_added": 5})
    rows.num_added = 5
    again.save(7, {"agent": state(7)}, no_policy, filled(rows, 7))
    assert names(tmp_path) == ["step_7", "step_5"]
    again.save(9, {"agent": state(9)}, no_policy, filled(rows, 9))
    assert names(tmp_path) == ["step_9", "step_7"]
    assert newest_intact(tmp_path, "agent", buffer=True)[0].step == 9
    np.testing.assert_array_equal(rows.rows, buffer.rows)


def test_a_damaged_checkpoint_that_is_written_again_is_kept(tmp_path: Path) -> None:
    save(tmp_path, 5, 9)
    damage(tmp_path / "checkpoints/step_9/agent.pt", "flipped")
    found, broken = newest_intact(tmp_path, "agent")
    again = CheckpointWriter(tmp_path, 2, MINE, found, broken)
    again.save(9, {"agent": state(9)}, no_policy, None)
    assert names(tmp_path) == ["step_9", "step_5"]
    assert newest_intact(tmp_path, "agent")[1] == []
    again.save(12, {"agent": state(12)}, no_policy, None)
    assert names(tmp_path) == ["step_12", "step_9"]


def test_rows_are_verified_only_on_request(tmp_path: Path) -> None:
    save(tmp_path, 5, 9, buffer=new_buffer())
    damage(tmp_path / "checkpoints/buffer/000000000005-000000000009.rows", "flipped")
    assert newest_intact(tmp_path, "agent")[0].step == 9
    assert newest_intact(tmp_path, "agent", buffer=True)[0].step == 5


def test_a_replay_buffer_in_one_file_is_verified_only_on_request(tmp_path: Path) -> None:
    for step in (5, 9):
        CheckpointWriter(tmp_path, 2, MINE).save(
            step, {"agent": {}, "replay_buffer": {"rows": [step]}}, no_policy, None
        )
    damage(tmp_path / "checkpoints/step_9/replay_buffer.pt", "flipped")
    assert newest_intact(tmp_path, "agent")[0].step == 9
    assert newest_intact(tmp_path, "agent", buffer=True)[0].step == 5


def test_rows_of_older_checkpoints_survive_a_damaged_manifest(tmp_path: Path) -> None:
    buffer = new_buffer(4)  # at step 9 it holds none of step 5's rows
    saver = save(tmp_path, 5, 9, keep=3, buffer=buffer)
    damage(tmp_path / "checkpoints/step_9/manifest.json", "empty")
    saver.save(13, {"agent": {}}, no_policy, filled(buffer, 13))
    damage(tmp_path / "checkpoints/step_13/agent.pt", "flipped")
    assert newest_intact(tmp_path, "agent", buffer=True)[0].step == 5


@pytest.mark.parametrize("key", list(MINE))
def test_a_checkpoint_with_another_identity_is_refused(tmp_path: Path, key: str) -> None:
    save(tmp_path, 5)
    with pytest.raises(UserError, match=f"step_5.*of {key}={MINE[key]}, not of {key}=other"):
        newest_intact(tmp_path, "agent", identity=MINE | {key: "other"})


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FORMAT", 7)
    save(tmp_path, 5)
    monkeypatch.undo()
    with pytest.raises(UserError, match="of format 7; this version reads 2"):
        newest_intact(tmp_path, "agent")


@pytest.mark.parametrize(("how", "error"), [("truncated", "RuntimeError"), ("empty", "EOFError")])
def test_a_file_that_changes_after_its_verification_is_reported(tmp_path: Path, how: str, error: str) -> None:
    save(tmp_path, 5)
    found, _ = newest_intact(tmp_path, "agent")
    damage(found.path / "agent.pt", how)
    with pytest.raises(UserError, match=rf"step_5/agent\.pt: cannot be read \({error}\)$"):
        found.load("agent")


def test_the_policy_is_a_file_of_the_checkpoint(tmp_path: Path) -> None:
    written: list[Path] = []

    def policy(path: Path) -> None:
        written.append(path)
        path.write_bytes(b"weights")

    writer = CheckpointWriter(tmp_path, 2, MINE)
    writer.save(5, {"agent": {}}, policy, None)
    assert [path.name for path in written] == ["policy.pt"]
    found, _ = newest_intact(tmp_path, "agent", "policy")
    assert (found.path / "policy.pt").read_bytes() == b"weights"
    assert found.has("agent") and found.has("policy")
    damage(found.path / "policy.pt", "flipped")
    with pytest.raises(BrokenError, match=r"policy\.pt has changed"):
        found.verify("policy")
    writer.save(9, {"agent": {}}, no_policy, None)
    assert not newest_intact(tmp_path, "agent")[0].has("policy")


class Evil:
    """Leaves a trace when an ordinary loader unpickles it."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return (os.mkdir, (str(self.trace),))


def test_an_untrusted_pickle_runs_no_code(tmp_path: Path) -> None:
    trace = tmp_path / "it_ran"
    CheckpointWriter(tmp_path, 2, MINE).save(5, {"agent": {"weights": Evil(trace)}}, no_policy, None)
    found, _ = newest_intact(tmp_path, "agent")  # its checksums are right
    with pytest.raises(UserError, match=r"agent\.pt: refused, as it holds more than tensors"):
        found.load("agent")
    assert not trace.exists()
    torch.load(found.path / "agent.pt", weights_only=False)  # an ordinary loader runs it
    assert trace.exists()


def test_a_changed_manifest_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 5)
    manifest = tmp_path / "checkpoints/step_5/manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 5', '"step": 6'))
    with pytest.raises(BrokenError, match="has changed"):
        Checkpoint(manifest.parent)


def test_the_agent_of_a_copied_checkpoint_loads_without_its_rows(tmp_path: Path) -> None:
    save(tmp_path, 5, buffer=new_buffer())
    copy = shutil.copytree(tmp_path / "checkpoints/step_5", tmp_path / "elsewhere/step_5")
    found = Checkpoint(copy)
    found.verify("agent")
    assert pickle.dumps(found.load("agent")["rng"]) == pickle.dumps(state(5)["rng"])
    with pytest.raises(BrokenError, match="rows"):
        found.verify("agent", buffer=True)
