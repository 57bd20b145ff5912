"""The sink of Weights & Biases, offline: the tests read back the files that it writes."""

import json
import re
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest

from logger import Logger
from sinks.wandb import WandbSink


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a home without an account, whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def records(folder: Path) -> list[Any]:
    """Reads the records of each offline run in a folder: a log in 32 KiB blocks that begins with a 7-byte header."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # finish() only asks the service to end a run; its last block is written when the service is gone
    found = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        data, position, whole = path.read_bytes(), 7, b""
        while position + 7 <= len(data):
            if 2**15 - position % 2**15 < 7:  # too little for a record's header: the block's padding
                position += 2**15 - position % 2**15
                continue
            _, size, kind = struct.unpack("<IHB", data[position : position + 7])
            whole += data[position + 7 : position + 7 + size]
            position += 7 + size
            if kind in (1, 4):  # a whole record, or the last part of one
                found.append(Record.FromString(whole))
                whole = b""
    return found


def history(found: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for record in found:
        if record.WhichOneof("record_type") == "history":
            items = {".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            rows.append({key: value for key, value in items.items() if not key.startswith("_")})
    return rows


def log_all_kinds(log: Logger) -> None:
    log.log_settings({"env": "cheetah_run", "agent": {"betas": [0.9, 0.999], "bound": None}})
    for step in (1000, 2000):
        log.log("eval/episode_reward", step / 10, step)
        log.dump(step)
    log.log_histogram("train_actor/mu_hist", np.array([0.0, 1.0, 1.0, np.nan]), 2000)
    log.log_histogram("train_actor/std_hist", np.array([np.inf]), 2000)  # nothing finite to show
    log.close()


def test_a_run_is_there_with_its_settings_curves_and_histograms_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "a_run"
    described = partial(WandbSink, project="tests", mode="offline", group="a study", tags=["fast"], notes="Two cores.")
    log_all_kinds(Logger(folder, {"wandb": described}, log_frequency=1))
    failed = described(log_dir=folder)  # the run goes on
    try:
        raise RuntimeError
    except RuntimeError:
        failed.close()
    found = records(folder)
    run, again = (record.run for record in found if record.WhichOneof("record_type") == "run")
    assert (run.project, run.display_name) == ("tests", "a_run")
    assert (run.run_group, list(run.tags), run.notes) == ("a study", ["fast"], "Two cores.")
    assert run.run_id == again.run_id == (folder / "wandb_id.txt").read_text()
    exits = [record.exit.exit_code for record in found if record.WhichOneof("record_type") == "exit"]
    assert sorted(exits) == [0, 1]
    configs = [record.config.update for record in found if record.WhichOneof("record_type") == "config"]
    values = {item.key: json.loads(item.value_json) for update in configs for item in update}
    assert values["env"] == "cheetah_run" and values["agent.betas"] == [0.9, 0.999] and values["agent.bound"] is None
    first, second, histogram = history(found)
    assert first == {"eval/episode_reward": 100, "step": 1000}
    assert second == {"eval/episode_reward": 200, "step": 2000}
    assert sum(histogram["train_actor/mu_hist.values"]) == 3 and histogram["step"] == 2000
    assert {record.metric.step_metric for record in found if record.metric.glob_name == "*"} == {"step"}


def test_it_is_off_by_default_and_one_key_away(tmp_path: Path) -> None:
    off = probes.workspace(tmp_path / "off", "env=ProbeTimeLimit-v0")
    off.logger.close()
    assert "wandb" not in off.logger.sinks and not (tmp_path / "off/wandb").exists()
    keys = ("log_save_wandb=true", "logger.sinks.wandb.mode=offline", "num_train_steps=200")
    on = probes.train(tmp_path / "on", "env=ProbeTimeLimit-v0", *keys)
    found = records(tmp_path / "on")
    (group,) = {record.run.run_group for record in found if record.WhichOneof("record_type") == "run"}
    assert re.fullmatch(r"sac_ProbeTimeLimit-v0_[0-9a-f]{6}", group)
    rows = history(found)
    assert [row["eval/episode_reward"] for row in rows if "eval/episode_reward" in row][-1] == on.progress.last_return
    assert any("train_critic/loss" in row for row in rows)
