"""The Weights & Biases sink, offline: the tests read back the files that it writes."""

import importlib.util
import json
import os
import re
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
from lines import prepared_folder

from files.links import refuse_links
from logger import Logger
from sinks import wandb as wandb_sink
from utils import UserError


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


def sink(log_dir: Path, **settings: Any) -> wandb_sink.WandbSink:
    return wandb_sink.WandbSink(log_dir=log_dir, project="tests", mode="offline", **settings)


def test_a_run_is_there_with_its_settings_curves_histograms_and_videos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    folder = tmp_path / "a_run"
    folder.mkdir()
    described = partial(sink, group="a study", tags=["fast", "cpu"], notes="Two cores.")
    log = Logger(folder, {"wandb": described}, log_frequency=1)
    log.log_settings({"env": "cheetah_run", "agent": {"actor_lr": 1e-4, "betas": [0.9, 0.999], "bound": None}})
    for step in (1000, 2000):
        log.log("eval/episode_reward", step / 10, step)
        log.dump(step)
    log.log_histogram("train_actor/mu_hist", np.array([0.0, 1.0, 1.0, np.nan]), 2000)
    log.log_histogram("train_actor/std_hist", np.array([np.inf]), 2000)  # nothing finite to show
    log.log_video("eval/video", np.zeros((3, 8, 8, 3), np.uint8), 2000)
    log.log_image("train/images", np.zeros((8, 16, 3), np.uint8), 2000)
    log.close()

    found = records(folder)
    (run,) = (record.run for record in found if record.WhichOneof("record_type") == "run")
    assert (run.project, run.display_name) == ("tests", "a_run")
    assert run.run_id == (folder / "wandb_id.txt").read_text()
    configs = [record.config.update for record in found if record.WhichOneof("record_type") == "config"]
    values = {item.key: json.loads(item.value_json) for update in configs for item in update}
    assert values["env"] == "cheetah_run" and values["agent.actor_lr"] == 1e-4
    assert values["agent.betas"] == [0.9, 0.999] and values["agent.bound"] is None
    assert (run.run_group, list(run.tags), run.notes) == ("a study", ["fast", "cpu"], "Two cores.")
    first, second, histogram, video, strip = history(found)
    assert first == {"eval/episode_reward": 100, "step": 1000}
    assert second == {"eval/episode_reward": 200, "step": 2000}
    assert sum(histogram["train_actor/mu_hist.values"]) == 3 and histogram["step"] == 2000
    assert video["eval/video._type"] == "video-file" and video["eval/video.path"].endswith(".gif")
    assert strip["train/images._type"] == "image-file" and strip["train/images.width"] == 16
    (metric,) = (record.metric for record in found if record.metric.glob_name == "*")
    assert metric.step_metric == "step"
    assert list(elsewhere.iterdir()) == []
    refuse_links(folder)  # a run with W&B's links can be resumed


def test_a_run_that_goes_on_here_goes_on_there_and_a_failed_one_is_told(tmp_path: Path) -> None:
    sink(tmp_path).close()
    identity = (tmp_path / "wandb_id.txt").read_text()
    failed = sink(tmp_path)
    try:
        raise RuntimeError
    except RuntimeError:
        failed.close()
    assert (tmp_path / "wandb_id.txt").read_text() == identity
    found = records(tmp_path)
    runs = [record.run.run_id for record in found if record.WhichOneof("record_type") == "run"]
    exits = [record.exit.exit_code for record in found if record.WhichOneof("record_type") == "exit"]
    assert set(runs) == {identity} and sorted(exits) == [0, 1]


def test_it_is_off_by_default_and_one_key_away(tmp_path: Path) -> None:
    off = probes.workspace(tmp_path / "off", "env=ProbeTimeLimit-v0")
    off.logger.close()
    assert "wandb" not in off.logger.sinks and not (tmp_path / "off/wandb").exists()
    on = probes.train(
        tmp_path / "on", "env=ProbeTimeLimit-v0", "log_save_wandb=true", "logger.sinks.wandb.mode=offline"
    )
    found = records(tmp_path / "on")
    rows = history(found)
    (group,) = {record.run.run_group for record in found if record.WhichOneof("record_type") == "run"}
    assert re.fullmatch(r"sac_ProbeTimeLimit-v0_[0-9a-f]{6}", group)
    evaluations = [row for row in rows if "eval/episode_reward" in row]
    assert (evaluations[-1]["step"], evaluations[-1]["eval/episode_reward"]) == (600, on.last_return)
    assert any("train_critic/loss" in row for row in rows)


def test_what_is_missing_is_one_line_before_anything_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"log_save_wandb=true: .*pip install -e '\.\[wandb\]'"):
        prepared_folder("log_save_wandb=true")
    assert list(tmp_path.iterdir()) == []


def test_nobody_logged_in_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match=r"log_save_wandb=true: .*API key.*mode=offline needs no account"):
        prepared_folder("log_save_wandb=true")
    assert not (tmp_path / "exp").exists()
    wandb_sink.require("offline")
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb_sink.require(None)


def test_a_home_that_cannot_be_written_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("WANDB_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", os.devnull)  # not even root can make a folder in it
    sink(tmp_path).close()
    assert records(tmp_path)
    assert list((tmp_path / "wandb/logs").iterdir())
    said = "".join(capfd.readouterr())
    assert all(line.startswith("wandb: ") for line in said.splitlines()), said  # and nothing from its process


def test_a_user_without_a_home_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(UserError, match=r"^log_save_wandb=true: its package needs a home folder; set HOME to one$"):
        wandb_sink.require("offline")
