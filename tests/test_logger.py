"""Logged values arrive in the files."""

import csv
import errno
import io
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from runs import ROOT
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

from files.output import is_lost
from logger import Logger
from sinks.console import ConsoleSink
from sinks.csv_files import CsvSink
from sinks.sink import Sink
from sinks.tensorboard import TensorBoardSink
from utils import UserError

SINKS = {"csv": CsvSink, "tensorboard": TensorBoardSink, "console": ConsoleSink}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def events(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder / "tb"), size_guidance={"scalars": 0, "images": 0, "histograms": 0})
    accumulator.Reload()
    return accumulator


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    return sorted((event.step, event.value) for event in events(folder).Scalars(tag))


def test_values_are_averaged_between_dumps_and_blank_where_missing(tmp_path: Path) -> None:
    log = Logger(tmp_path, SINKS)
    log.log("train/episode", 1, 100)
    log.dump(100, ty="train")
    for value in (1.0, 2.0):
        log.log("train_critic/loss", torch.tensor(value), 150)
    log.log("train_actor/loss", 9.0, 150, n=3)
    log.log("train/episode", 2, 200)
    log.dump(200)
    log.close()
    first, second = rows(tmp_path / "train.csv")
    assert first["episode"] == "1" and first["step"] == "100" and first["critic_loss"] == ""
    assert (second["step"], second["critic_loss"], second["actor_loss"]) == ("200", "1.5", "3.0")
    assert list(first)[:3] == ["episode", "step", "episode_reward"]
    assert [(e.step, e.value) for e in events(tmp_path).Scalars("train/episode")] == [(100, 1), (200, 2)]


def test_a_buffer_that_is_written_over_later_counts_as_it_was(tmp_path: Path) -> None:
    log, buffer = Logger(tmp_path, {"csv": CsvSink}), torch.tensor(1.0)
    log.log("train/x", buffer, 1)
    buffer.fill_(3.0)
    log.log("train/x", buffer, 2)
    buffer.fill_(100.0)
    log.dump(2)
    assert rows(tmp_path / "train.csv")[0]["x"] == "2.0"


def test_a_new_key_widens_the_file_and_a_quoted_cell_survives(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"csv": CsvSink})
    log.log("eval/episode_reward", 1.0, 10)
    log.dump(10)
    log.log("eval/episode_reward", 2.0, 20)
    log.log("eval_custom/a,b", 7.0, 20)
    log.dump(20)
    before, after = rows(tmp_path / "eval.csv")
    assert (before["custom_a,b"], after["custom_a,b"]) == ("", "7.0")
    assert before["episode_reward"] == "1.0" and after["episode_reward"] == "2.0"


IN_ASCII = """
from pathlib import Path
from sinks.csv_files import CsvSink
sink = CsvSink(Path())
sink.dump("train", {"train_custom/L\\u00e4ufer": 0.0}, 5)
sink.dump("eval", {"eval/episode_reward": 1.0}, 10)
sink.dump("eval", {"eval_custom/L\\u00e4ufer": 2.0}, 20)
sink.dump("eval", {"eval_custom/more": 2.5}, 25)
state = sink.state_dict()
sink.dump("eval", {"eval_custom/L\\u00e4ufer": 3.0}, 30)
CsvSink(Path()).load_state_dict(state)
"""


def test_logs_are_utf8_whatever_the_locale(tmp_path: Path) -> None:
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", IN_ASCII], cwd=tmp_path, env=os.environ | ascii_locale, check=True)
    made = {name: (tmp_path / f"{name}.csv").read_bytes().decode("utf-8").splitlines() for name in ("train", "eval")}
    assert made["train"][0].endswith(",custom_Läufer") and made["eval"][0].endswith(",custom_Läufer,custom_more")
    assert [line.split(",")[1] for line in made["eval"][1:]] == ["10", "20", "25"]


def test_an_existing_file_is_continued_not_deleted(tmp_path: Path) -> None:
    for step in (1, 2):
        log = Logger(tmp_path, {"csv": CsvSink})
        log.log("train/extra", step, step)
        log.dump(step)
    assert [row["extra"] for row in rows(tmp_path / "train.csv")] == ["1", "2"]


def test_groups_are_dumped_apart_and_unsaved_dumps_clear(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"csv": CsvSink})
    log.log("train/a", 1.0, 1)
    log.log("eval/a", 2.0, 1)
    log.dump(1, ty="eval")
    assert not (tmp_path / "train.csv").exists()
    log.dump(1, save=False, ty="train")
    log.log("train/a", 5.0, 2)
    log.dump(2, ty="train")
    assert [row["a"] for row in rows(tmp_path / "train.csv")] == ["5.0"]


def test_a_key_without_a_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="train"):
        Logger(tmp_path, {}).log("loss", 1.0, 1)


def test_log_frequency_thins_out(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"csv": CsvSink})
    for step in range(0, 100, 7):  # crosses a multiple of 20 at 21, 42, 63, 84
        log.log("train/a", float(step), step, log_frequency=20)
    log.dump(100)
    assert float(rows(tmp_path / "train.csv")[0]["a"]) == (21 + 42 + 63 + 84) / 4


def test_finer_curves_in_tensorboard_when_asked(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"tensorboard": TensorBoardSink, "csv": CsvSink}, log_every_steps=10)
    for step in range(26):
        log.log("train_critic/loss", float(step), step)
    log.dump(25)
    log.close()
    assert curve(tmp_path, "train_critic/loss") == [(10, 5.0), (20, 15.5), (25, 23.0)]
    assert rows(tmp_path / "train.csv")[0]["critic_loss"] == "12.5"


def test_a_dump_at_a_multiple_begins_the_next_point_of_finer_curves(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"tensorboard": TensorBoardSink}, log_every_steps=10)
    for steps, end in ((range(12, 29, 2), 31), (range(31, 36, 2), 36)):  # the first value comes after a multiple
        for step in steps:
            log.log("train_critic/loss", float(step), step)
        log.dump(end)
    log.close()
    assert curve(tmp_path, "train_critic/loss") == [(20, 16.0), (31, 25.0), (36, 33.0)]


@pytest.mark.parametrize("value", [np.float32(1.5), np.array([1.5]), np.array(1.5)])
def test_a_number_of_numpys_is_a_number_also_in_a_checkpoint(tmp_path: Path, value: Any) -> None:
    log = Logger(tmp_path, {"csv": CsvSink})
    log.log("train/mine", value, 3)
    assert type(log.state_dict()["meters"]["train/mine"][0]) is float
    log.dump(3)
    assert rows(tmp_path / "train.csv")[0]["mine"] == "1.5"


def test_all_sinks_are_closed_where_one_fails(tmp_path: Path) -> None:
    closed: list[str] = []

    class Fails(Sink):
        def close(self) -> None:
            closed.append("first")
            raise OSError("no disk")

    class Counts(Sink):
        def close(self) -> None:
            closed.append("second")

    with pytest.raises(OSError, match="no disk"):
        Logger(tmp_path, {"fails": Fails, "counts": Counts}).close()
    assert closed == ["first", "second"]


def test_histograms_of_values_layers_and_members(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"tensorboard": TensorBoardSink}, log_frequency=100)
    layer = torch.nn.Linear(3, 2)
    layer(torch.ones(1, 3)).sum().backward()
    ensemble = torch.nn.Module()
    ensemble.weight = torch.nn.Parameter(torch.stack([torch.zeros(4, 4), torch.ones(4, 4)]))
    for step in (99, 100, 101):
        log.log_histogram("train_critic/q1_hist", torch.arange(5.0), step)
        log.log_param("train_actor/fc0", layer, step)
        log.log_param("train_critic/q2_fc0", ensemble, step, member=1)
    log.close()
    written = events(tmp_path)
    names = {
        "train_critic/q1_hist",
        *(f"train_actor/fc0_{end}" for end in ("w", "w_g", "b", "b_g")),
        "train_critic/q2_fc0_w",
    }
    assert set(written.Tags()["histograms"]) == names
    (only,) = written.Histograms("train_critic/q2_fc0_w")
    assert only.step == 100
    assert only.histogram_value.num == 16 and only.histogram_value.min == 1.0


def console_lines(
    folder: Path, capsys: pytest.CaptureFixture[str], *dumps: dict[str, float], columns: list[str] | None = None
) -> list[str]:
    """The lines that the console sink prints for rows of values, each with its `step`."""
    make = ConsoleSink if columns is None else partial(ConsoleSink, columns=columns)
    log = Logger(folder, {"console": make})
    for values in dumps:
        for key in values.keys() - {"step"}:
            log.log(key, values[key], int(values["step"]))
        log.dump(int(values["step"]))
    log.close()
    log.close()
    return capsys.readouterr().out.splitlines()


SEEDING = {"train/episode": 5, "step": 5000, "train/episode_reward": 123.45678, "train/duration": 10.12}
LEARNING = {
    "train/episode": 1000,
    "step": 1_000_000,
    "train/episode_reward": -1184.82,
    "train/duration": 3600.0,
    "train_critic/loss": 3096.58,
    "train_actor/loss": 123456.7,
    "train_alpha/value": 0.098765,
    "train_actor/entropy": -5.28,
    "train/mine": 7.0,
}
EVALUATED = {"eval/episode": 1000, "step": 990_000, "eval/episode_reward": 0.03125, "eval/episode_reward_std": 259.52}


def test_the_console_shows_a_table_whose_columns_line_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert console_lines(tmp_path, capsys, SEEDING, LEARNING, EVALUATED) == [
        "|       | episode |     step |   return | seconds",
        "| train |       5 |     5000 |    123.5 |    10.1",
        "|       | episode |     step |   return | critic loss | actor loss |   alpha | entropy | seconds",
        "| train |    1000 |  1000000 |  -1184.8 |        3097 |     123457 | 0.09877 |  -5.280 |  3600.0",
        "| eval  |    1000 |   990000 |  0.03125 | ± 259.5",
    ]


def test_the_consoles_header_is_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = console_lines(tmp_path, capsys, *[SEEDING] * 41)
    assert [number for number, line in enumerate(lines) if "episode" in line] == [0, 21, 42]


@pytest.mark.parametrize(
    ("columns", "header"),
    [
        ("80", "|       | episode |     step |   return | critic loss | actor loss |   alpha"),
        ("120", "|       | episode |     step |   return | critic loss | actor loss |   alpha | entropy | seconds"),
        ("30", "|       | episode |     step |   return"),
    ],
)
def test_in_a_narrow_terminal_the_last_columns_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, header: str
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    lines = console_lines(tmp_path, capsys, LEARNING, EVALUATED)
    assert lines[0] == header and all(len(line) <= max(int(columns), 40) for line in lines)


def test_a_console_that_lacks_a_sign_prints_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    sink = ConsoleSink(tmp_path)
    sink.dump("train", {"train_critic/loss": 3.0}, 5)
    sink.dump("eval", {"eval/episode_reward": 3.0, "eval/episode_reward_std": 1.0}, 5)
    assert b"? 1.000" in out.buffer.getvalue()  # type: ignore[attr-defined]


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_console_needs_only_what_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    tee = SimpleNamespace(write=written.append, flush=lambda: None, isatty=lambda: False)
    monkeypatch.setattr(sys, "stdout", tee)
    ConsoleSink(tmp_path).dump("train", {"train/episode": 1}, 5)
    assert "5" in "".join(written) and not is_lost()
    tee.flush = full_disk
    with pytest.raises(OSError, match="No space left"):
        ConsoleSink(tmp_path).dump("train", {"train/episode": 1}, 5)


def test_a_run_goes_on_without_what_its_console_was_piped_to(tmp_path: Path) -> None:
    code = "from pathlib import Path; from sinks.console import ConsoleSink; sink = ConsoleSink(Path())\n"
    code += "for step in range(4): sink.dump('train', {'train/episode': step}, step)\n"
    code += "print('unread'); open('done', 'w').close()"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"") and (tmp_path / "done").exists()


def test_columns_of_ones_own_on_the_console(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["train/mine", "episode_reward_std", "nothing", "step"]
    *table, missing = console_lines(tmp_path, capsys, LEARNING, EVALUATED, columns=asked)
    assert table == [
        "|       | episode |     step |   return |    mine",
        "| train |    1000 |  1000000 |  -1184.8 |   7.000",
        "|       | episode |     step |   return |    mine |     std",
        "| eval  |    1000 |   990000 |  0.03125 | ± 259.5 |   259.5",
    ]
    assert missing.startswith("logger.sinks.console.columns=nothing: nothing was logged by that name; there are actor_")
    assert missing.endswith("episode_reward_std, mine, step")


def test_videos_reach_tensorboard_as_animations(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"tensorboard": TensorBoardSink})
    log.log_video("eval/video", np.random.default_rng(0).integers(0, 256, (4, 16, 24, 3)), 7)
    log.close()
    (image,) = events(tmp_path).Images("eval/video")
    assert (image.width, image.height, image.step) == (24, 16, 7)
    assert image.encoded_image_string[:4] == b"GIF8"


@pytest.mark.parametrize("resumed_after", [None, 2, 3, 4])
def test_a_curve_is_written_from_its_first_change_on(tmp_path: Path, resumed_after: int | None) -> None:
    log = Logger(tmp_path, {"tensorboard": TensorBoardSink})
    nan = math.nan
    values = {"train/late": (7, 7, 7, 8, 8), "train/flat": (3,) * 5, "train/nan": (nan, nan, 1, 1, 2)}
    values["train_info/is_success"] = (0,) * 5
    for step in range(1, 6):
        for key in values:
            log.log(key, values[key][step - 1], step)
        log.log("eval/episode_reward", 50.0, step)
        log.dump(step)
        if step == resumed_after:
            state = log.state_dict()
            log.log("train/flat", -1, step)  # resuming cuts this off
            log.dump(step)
            log.close()
            log = Logger(tmp_path, {"tensorboard": TensorBoardSink})
            log.load_state_dict(state)
    log.close()
    assert curve(tmp_path, "train/late") == [(1, 7), (3, 7), (4, 8), (5, 8)]
    assert curve(tmp_path, "train/nan") == [(3, 1), (4, 1), (5, 2)]
    assert curve(tmp_path, "train_info/is_success") == [(step, 0) for step in range(1, 6)]
    assert curve(tmp_path, "eval/episode_reward") == curve(tmp_path, "Return/evaluation")
    assert [step for step, _ in curve(tmp_path, "Return/evaluation")] == [1, 2, 3, 4, 5]
    tags = sorted(events(tmp_path).Tags()["scalars"])
    assert tags[0] == "Return/evaluation" and "train/flat" not in tags


def test_a_forged_state_of_curves_is_refused(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path)
    with pytest.raises(ValueError, match="train/a: a saved value is not a number"):
        sink.load_state_dict({"bytes": {}, "constant": {"train/a": ["x", 1, 0.0, 1, 0.0]}})
    sink.load_state_dict({"bytes": {}})  # a state of an earlier version


def test_a_sink_of_ones_own(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Mine(Sink):
        def dump(self, group: str, row: dict, step: int) -> None:
            seen.append((self.log_dir, group, row, step))

    log = Logger(tmp_path, {"mine": Mine, "off": None})
    log.log("train/a", 1.5, 3)
    log.dump(3)
    assert seen == [(tmp_path, "train", {"train/a": 1.5}, 3)]


def test_rows_written_after_a_state_was_taken_are_cut(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"csv": CsvSink})
    log.log("train/a", 1, 1)
    log.dump(1)
    state = log.state_dict()
    log.log("train/a", 2, 2)
    log.dump(2)
    again = Logger(tmp_path, {"csv": CsvSink})
    again.load_state_dict(state)
    again.log("train/a", 3, 3)
    again.dump(3)
    assert [row["a"] for row in rows(tmp_path / "train.csv")] == ["1", "3"]


def test_no_file_is_cut_where_another_is_damaged(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"csv": CsvSink, "tensorboard": TensorBoardSink})
    for step in (1, 2):
        log.log("train/a", step, step)
        log.log("eval/a", step, step)
        log.dump(step)
        if step == 1:
            state = log.state_dict()
    log.close()
    (tmp_path / "eval.csv").write_text("step")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    before = [path.read_bytes() for path in files]
    again = Logger(tmp_path, {"csv": CsvSink})
    assert again.lost(state) == {
        tmp_path / "eval.csv": f"4 bytes, where its checkpoint left {state['sinks']['csv']['bytes']['eval']}"
    }
    with pytest.raises(UserError, match=r"eval\.csv: 4 bytes"):
        again.load_state_dict(state)
    state["sinks"]["tensorboard"]["bytes"] |= {"events.out.tfevents.9": -1}
    (tmp_path / "tb/events.out.tfevents.9").touch()
    with pytest.raises(ValueError, match="-1, not a count"):
        TensorBoardSink(tmp_path).load_state_dict(state["sinks"]["tensorboard"])
    assert [path.read_bytes() for path in files] == before


def test_what_is_not_finite_is_left_out_of_histograms(tmp_path: Path) -> None:
    log = Logger(tmp_path, {"tensorboard": TensorBoardSink})
    log.log_histogram("train/a", torch.tensor([1.0, float("nan")]), 1, log_frequency=1)
    log.log_histogram("train/b", torch.tensor([float("inf")]), 1, log_frequency=1)
    log.close()
    assert events(tmp_path).Tags()["histograms"] == ["train/a"]


def test_unfinished_meters_survive_a_restart(tmp_path: Path) -> None:
    def logged(log: Logger, steps: range) -> None:
        for step in steps:
            log.log("train/a", torch.tensor(float(step)), step, log_frequency=3)
            log.log("train/b", step, step)

    straight, first = (Logger(tmp_path / name, {"csv": CsvSink}) for name in "ab")
    logged(straight, range(20))
    logged(first, range(10))
    second = Logger(tmp_path / "b", {"csv": CsvSink})
    second.load_state_dict(first.state_dict())
    logged(second, range(10, 20))
    for log in (straight, second):
        log.dump(20)
    assert (tmp_path / "a/train.csv").read_bytes() == (tmp_path / "b/train.csv").read_bytes()


def test_a_new_log_frequency_counts_after_a_restart(tmp_path: Path) -> None:
    def logged(frequency: int, steps: range, folder: str, state: Any = None) -> Logger:
        log = Logger(tmp_path / folder, {"tensorboard": TensorBoardSink}, log_frequency=frequency)
        if state:
            log.load_state_dict(state)
        for step in steps:
            log.log_histogram("train/a", torch.ones(3), step)
        return log

    state = logged(1000, range(1001), "before").state_dict()
    state["sinks"] = {}
    logged(10, range(1001, 1100), "after", state).close()
    assert len(events(tmp_path / "after").Histograms("train/a")) == 9


def test_sums_that_were_restored_on_the_cpu_go_on_on_the_device(tmp_path: Path) -> None:
    log, on_device = Logger(tmp_path, {}), torch.ones((), device="meta")
    log.log_all({"train/a": torch.ones(()), "train/b": torch.ones(())}, 1)
    log.load_state_dict(log.state_dict())
    log.log_all({"train/a": on_device, "train/b": on_device}, 2)


def test_values_logged_together_are_those_logged_one_by_one(tmp_path: Path) -> None:
    together, alone = Logger(tmp_path, {}), Logger(tmp_path, {})
    for step in range(1, 6):
        values = {"train_critic/loss": torch.tensor(float(step)), "train_actor/target_entropy": -6.0}
        if step % 2:
            values["train_actor/loss"] = torch.tensor(10.0 * step)
        together.log_all(values, step)
        for key, value in values.items():
            alone.log(key, value, step)
        if step == 3:
            state, together = together.state_dict(), Logger(tmp_path, {})
            together.load_state_dict(state)
    assert together.peek() == alone.peek()
    assert together.dump(5) == alone.dump(5)


def test_tensorboard_sets_settings_against_final_returns(tmp_path: Path) -> None:
    for seed, rate, final in ((1, 1e-3, 100.0), (2, 1e-3, 120.0), (1, 1e-4, 50.0)):
        folder = tmp_path / f"{seed}-{rate}"
        folder.mkdir()
        log = Logger(folder, {"tensorboard": TensorBoardSink})
        agent = {"lr": rate, "bound": None, "_target_": "a.B", "obs_dim": 17, "reward_scale": 1.0}
        buffer = {"_target_": "a.C", "capacity": 9, "seed": seed, "with_replacement": True, "share": 0.5}
        log.log_settings(
            {"env": "cheetah_run", "seed": seed, "agent": agent, "replay_buffer": buffer, "reward_scale": 1.0}
        )
        for step, value in ((1000, 1.0), (2000, final)):
            log.log("eval/episode_reward", value, step)
            log.dump(step)
        log.close()

    # What TensorBoard's HParams page asks its server.
    runs = EventMultiplexer()
    runs.AddRunsFromDirectory(str(tmp_path))
    runs.Reload()
    provider = MultiplexerDataProvider(runs, str(tmp_path))
    page, request = backend_context.Context(TBContext(data_provider=provider)), RequestContext()
    written = page.hparams_metadata(request, "")
    columns = page.experiment_from_metadata(request, "", True, written, [])
    assert {info.name for info in columns.hparam_infos} == {
        "env",
        "seed",
        "reward_scale",
        "agent.lr",
        "agent.bound",
        "replay_buffer.share",
    }
    assert {info.name for info in columns.hparam_infos if info.differs} == {"seed", "agent.lr"}
    assert columns.metric_infos[0].name.tag == "Return/evaluation"
    asked = api_pb2.ListSessionGroupsRequest(slice_size=10, allowed_statuses=[api_pb2.STATUS_UNKNOWN])
    rows = {
        (group.hparams["seed"].number_value, group.hparams["agent.lr"].number_value): metric.value
        for group in list_session_groups.Handler(request, page, "", asked).run().session_groups
        for metric in group.metric_values
        if metric.name.tag == "eval/episode_reward"
    }
    assert rows == {(1, 1e-3): 100, (2, 1e-3): 120, (1, 1e-4): 50}


def test_the_state_of_a_curve_that_has_not_changed_can_be_read_back(tmp_path: Path) -> None:
    """The mean of a numpy array is a numpy number, which is refused when a checkpoint is read."""
    sink = TensorBoardSink(tmp_path)
    sink.scalars({"train/duration": np.float64(1.5), "train/episode": 1}, 10)
    torch.save(sink.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True)["constant"]["train/duration"][0] == 1.5
    sink.close()
