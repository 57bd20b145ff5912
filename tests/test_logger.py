"""Logged values arrive in the files."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import rows
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from logger import Logger
from sinks import console
from sinks.console import ConsoleSink
from sinks.csv_files import CsvSink
from sinks.sink import Sink
from sinks.tensorboard import TensorBoardSink

SINKS = {"csv": CsvSink, "tensorboard": TensorBoardSink, "console": ConsoleSink}


def events(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder / "tb"), size_guidance={"scalars": 0, "histograms": 0})
    accumulator.Reload()
    return accumulator


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    return sorted((event.step, event.value) for event in events(folder).Scalars(tag))


def test_values_are_averaged_between_dumps_and_blank_where_missing(tmp_path: Path) -> None:
    log, buffer = Logger(tmp_path, SINKS), torch.tensor(1.0)
    log.log("train/episode", 1, 100)
    log.dump(100, ty="train")
    log.log("train_critic/loss", buffer, 150)
    buffer.fill_(2.0)  # what was logged stays as it was
    log.log("train_critic/loss", buffer, 150)
    log.log("train_actor/loss", 9.0, 150, n=3)
    log.log("train_alpha/loss", np.array([1.5], np.float32), 150)
    log.log("train/episode", 2, 200)
    log.dump(200)
    log.close()
    first, second = rows(tmp_path / "train.csv")
    assert first["episode"] == "1" and first["step"] == "100" and first["critic_loss"] == ""
    names = ("step", "critic_loss", "actor_loss", "alpha_loss")
    assert [second[name] for name in names] == ["200", "1.5", "3.0", "1.5"]
    assert list(first)[:3] == ["episode", "step", "episode_reward"]
    assert curve(tmp_path, "train/episode") == [(100, 1), (200, 2)]


def test_a_new_key_widens_the_file_and_an_existing_file_is_continued(tmp_path: Path) -> None:
    for step, key in ((10, "eval/episode_reward"), (20, "eval_custom/a,Ä"), (30, "eval/more")):
        log = Logger(tmp_path, {"csv": CsvSink})
        log.log(key, float(step), step)
        log.dump(step)
    names = ("step", "episode_reward", "custom_a,Ä", "more")
    cells = [[row[name] for name in names] for row in rows(tmp_path / "eval.csv")]
    assert cells == [["10", "10.0", "", ""], ["20", "", "20.0", ""], ["30", "", "", "30.0"]]


def test_groups_are_dumped_apart_and_unsaved_dumps_clear(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"csv": CsvSink})
    log.log("train/a", 1.0, 1)
    log.log("eval/a", 2.0, 1)
    assert log.dump(1, ty="eval") == {"eval/a": 2.0} and not (tmp_path / "train.csv").exists()
    log.dump(1, save=False, ty="train")
    log.log("train/a", 5.0, 2)
    log.dump(2, ty="train")
    assert [row["a"] for row in rows(tmp_path / "train.csv")] == ["5.0"]
    log.log("loss", 1.0, 1)
    with pytest.raises(ValueError, match="'loss': it has to start with train/"):
        log.dump(1)


def test_log_frequency_thins_out(tmp_path: Path) -> None:
    log = Logger(tmp_path, {})
    for step in range(0, 100, 7):  # crosses a multiple of 20 at 21, 42, 63, 84
        log.log("train/a", float(step), step, log_frequency=20)
    assert log.dump(100) == {"train/a": (21 + 42 + 63 + 84) / 4}


def test_histograms_of_values_layers_and_members(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"tensorboard": TensorBoardSink}, log_frequency=100)
    layer = torch.nn.Linear(3, 2)
    layer(torch.ones(1, 3)).sum().backward()
    ensemble = torch.nn.Module()
    ensemble.weight = torch.nn.Parameter(torch.stack([torch.zeros(4, 4), torch.ones(4, 4)]))
    for step in (99, 100, 101):
        log.log_histogram("train_critic/q1_hist", torch.tensor([1.0, torch.nan]), step)
        log.log_histogram("train_critic/q2_hist", torch.tensor([torch.inf]), step)  # nothing finite to show
        log.log_param("train_actor/fc0", layer, step)
        log.log_param("train_critic/q2_fc0", ensemble, step, member=1)
    log.close()
    written = events(tmp_path)
    layers = {f"train_actor/fc0_{end}" for end in ("w", "w_g", "b", "b_g")}
    assert set(written.Tags()["histograms"]) == {"train_critic/q1_hist", "train_critic/q2_fc0_w", *layers}
    (only,) = written.Histograms("train_critic/q2_fc0_w")
    assert only.step == 100 and only.histogram_value.num == 16 and only.histogram_value.min == 1.0


def console_lines(
    folder: Path, capsys: pytest.CaptureFixture[str], *dumps: dict[str, float], **options: Any
) -> list[str]:
    """The lines that the console sink prints for rows of values, each with its `step`."""
    log = Logger(folder, {"console": partial(ConsoleSink, **options)})
    for values in dumps:
        for key in values.keys() - {"step"}:
            log.log(key, values[key], int(values["step"]))
        log.dump(int(values["step"]))
    log.close()
    return capsys.readouterr().out.splitlines()


SEEDING = {"train/episode": 5, "step": 5000, "train/episode_reward": 123.45678, "train/duration": 10.12}
LOSSES = {"train_critic/loss": 3096.58, "train_actor/loss": 123456.7, "train_alpha/value": 0.098765}
LEARNING = LOSSES | {"train_actor/entropy": -5.28, "train/mine": 7.0, "train/episode": 1000, "step": 1_000_000}
LEARNING |= {"train/episode_reward": -1184.82, "train/duration": 3600.0}
EVALUATED = {"eval/episode": 1000, "step": 990_000, "eval/episode_reward": 0.03125, "eval/episode_reward_std": 259.52}


def test_the_console_shows_a_table_whose_columns_line_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "ROW_EVERY_S", 0.0)
    assert console_lines(tmp_path, capsys, SEEDING, LEARNING, EVALUATED) == [
        "|       | episode |     step |   return |  seconds",
        "| train |       5 |     5000 |    123.5 |    10.12",
        "|       | episode |     step |   return | critic loss | actor loss | temperature | actor entropy |  seconds",
        "| train |    1000 |  1000000 |  -1184.8 |      3096.6 |   123456.7 |     0.09877 |        -5.280 |   3600.0",
        "| eval  |    1000 |   990000 |  0.03125 | ± 259.5",
    ]
    lines = console_lines(tmp_path, capsys, *[LEARNING] * 41, columns=["mine", "nothing", "step"])
    assert [number for number, line in enumerate(lines) if "episode" in line] == [0, 21, 42]
    assert lines[:2] == [
        "|       | episode |     step |   return |     mine",
        "| train |    1000 |  1000000 |  -1184.8 |    7.000",
    ]


def test_the_console_prints_evaluations_and_an_episode_per_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ConsoleSink(tmp_path)
    for episode, (now_s, group) in enumerate([(7.0, "train"), (7.9, "train"), (7.95, "eval"), (8.5, "train")] * 2):
        monkeypatch.setattr(console.time, "monotonic", lambda now_s=now_s, episode=episode: now_s + episode // 4 * 3)
        sink.dump(group, {f"{group}/episode": episode}, 5)
    printed = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if "step" not in line]
    assert [int(number) for _, number in printed] == [0, 2, 3, 4, 6, 7]


def test_in_a_narrow_terminal_the_last_columns_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = console_lines(tmp_path, capsys, LEARNING, EVALUATED)
    assert lines[0].endswith(" temperature") and all(len(line) <= 80 for line in lines)


def test_a_sink_of_ones_own(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Mine(Sink):
        def dump(self, group: str, row: dict, step: int) -> None:
            seen.append((self.log_dir, group, row, step))

    log = Logger(tmp_path, {"mine": Mine, "off": None})
    log.log("train/a", 1.5, 3)
    log.dump(3)
    assert seen == [(tmp_path, "train", {"train/a": 1.5}, 3)]


def test_logs_are_cut_back_to_where_a_state_was_taken(tmp_path: Path) -> None:
    def logged(folder: str, log: Logger, steps: range) -> Logger:
        for step in steps:
            log.log("train/a", torch.tensor(float(step)), step, log_frequency=3)
            log.log_all({"train/b": torch.tensor(step), "train/c" if step % 2 else "train/d": torch.tensor(1.0)}, step)
            log.log(f"eval/{step // 8}", step, step)  # new columns appear
            if step % 4 == 0:
                log.dump(step)
                log.log("train/e", 1, step)
        return log

    make = partial(Logger, sinks={"csv": CsvSink, "tensorboard": TensorBoardSink})
    straight = logged("a", make(tmp_path / "a"), range(30))
    first = logged("b", make(tmp_path / "b"), range(11))
    torch.save(first.state_dict(), tmp_path / "state.pt")
    logged("b", first, range(11, 20)).close()  # a killed run's rows after its checkpoint
    second = make(tmp_path / "b")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    logged("b", second, range(11, 30))
    assert straight.dump(30) == second.dump(30)
    straight.close()
    second.close()
    for name in ("train.csv", "eval.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    tags, others = (set(events(tmp_path / name).Tags()["scalars"]) for name in "ab")  # by file, in no sure order
    assert "train/b" in tags and tags == others
    assert [curve(tmp_path / "a", tag) for tag in tags] == [curve(tmp_path / "b", tag) for tag in tags]


def test_sums_that_were_restored_on_the_cpu_go_on_on_the_device(tmp_path: Path) -> None:
    log, on_device = Logger(tmp_path, {}), torch.ones((), device="meta")
    log.log_all({"train/a": torch.ones(()), "train/b": torch.ones(())}, 1)
    log.load_state_dict(log.state_dict())
    log.log_all({"train/a": on_device, "train/b": on_device}, 2)


def test_tensorboard_has_every_curve_and_sets_the_settings_beside_them(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"tensorboard": TensorBoardSink})
    agent = {"lr": 1e-3, "bound": None, "_target_": "a.B", "reward_scale": 1.0}
    log.log_settings({"env": "cheetah_run", "agent": agent, "reward_scale": 1.0, "logger": {"log_frequency": 3}})
    for step in (1, 2):
        log.log("train_actor/target_entropy", -6.0, step)  # constant
        log.log("eval/episode_reward", 50.0 * step, step)
        log.dump(step)
    log.close()
    written = events(tmp_path)
    assert curve(tmp_path, "train_actor/target_entropy") == [(1, -6.0), (2, -6.0)]
    assert curve(tmp_path, "eval/episode_reward") == curve(tmp_path, "Return/evaluation") == [(1, 50.0), (2, 100.0)]
    assert sorted(written.Tags()["scalars"])[0] == "Return/evaluation"
    content = written.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    hparams = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert set(hparams) == {"env", "reward_scale", "agent.lr", "agent.bound"}
