"""The reports that a sweep prints while it runs, made from the folders of its runs."""

import os
import shlex
import threading
from collections.abc import Callable
from pathlib import Path

import probes
import pytest
from made_runs import make_run
from runs import SILENT

from launch import sweep_report
from launch.request import read
from launch.sweep_report import SweepReport, reported, text
from run.saving import folder as run_folder
from utils import RunError

HEADER = "episode,step,episode_reward\n"


def begin(run: Path) -> None:
    """Writes what Hydra writes when a job begins."""
    (run / ".hydra").mkdir(exist_ok=True)
    (run / ".hydra/overrides.yaml").write_text("[]")


def made(folder: Path, step: int, *returns: tuple[int, float]) -> Path:
    """Makes a run of 1000 steps that has reached `step`."""
    make_run(folder, returns, length=1000)
    (folder / "train.csv").write_text(f"{HEADER}1,{step},-1.0\n2,{step + 7},")  # the last row is half written
    return folder


def test_a_report_counts_runs_and_estimates_the_time_left(tmp_path: Path) -> None:
    report = SweepReport(tmp_path, 4)
    assert report.head(report.runs()) == "0 of 4 done"
    done, half, failed = (made(tmp_path / name, 500, (100, 3.0), (400, 5.25)) for name in ("a", "b", "c"))
    for run in (done, half):
        begin(run)
    run_folder.mark_finished(done, 1000, 7.5)
    # One and a half runs took 30 minutes; two and a half are left.
    assert text(report, report.runs(), report.runs()).splitlines()[1:] == [
        "  a: finished, return 7.5",
        "  b: step 500 of 1000, return 5.2",
    ]
    assert report.head(report.runs(), 1800.0) == "1 of 4 done, 1 running, about 50 minutes left"
    begin(failed)
    run_folder.mark_failed(failed, [], "too hot")
    assert report.head(report.runs(), 1800.0).startswith("2 of 4 done (1 failed), 1 running, about ")
    assert "  c: failed, return 5.2" in text(report, report.runs(), report.runs())


def test_runs_of_an_earlier_sweep_count_when_their_jobs_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, step in (("old", 1000), ("mine", 800)):
        begin(made(tmp_path / name, step))
    run_folder.mark_finished(tmp_path / "old", 1000, 7.5)
    report = SweepReport(tmp_path, 2)
    assert report.runs() == []
    report._before[tmp_path / "mine/.hydra/overrides.yaml"] = 0  # as if the job had been restarted: the time differs
    assert [run.name for run in report.runs()] == ["mine"]
    assert report.head(report.runs(), 60.0) == "0 of 2 done, 1 running"  # no step since then, so no estimate
    (tmp_path / "mine/train.csv").write_text(f"{HEADER}1,900,-1.0\n")
    assert report.head(report.runs(), 60.0) == "0 of 2 done, 1 running, about 11 minutes left"


def test_a_long_list_is_cut_and_a_run_without_files_is_named(tmp_path: Path) -> None:
    report = SweepReport(tmp_path, 30)
    for number in range(sweep_report.MOST_LINES + 3):
        (tmp_path / f"{number:02}").mkdir()
        begin(tmp_path / f"{number:02}")
    lines = text(report, report.runs(), report.runs()).splitlines()
    assert lines[0] == "Sweep: 0 of 30 done, 23 running" and lines[1] == "  00: running" and lines[-1] == "  and 3 more"


def test_old_checkpoints_may_vanish_while_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(made(tmp_path / "a", 500))
    old, scandir = tmp_path / "a/checkpoints/step_100", os.scandir
    old.mkdir(parents=True)

    def deletes_it_first(path: str | Path) -> object:
        if Path(path) == old:
            old.rmdir()
        return scandir(path)

    report = SweepReport(tmp_path, 1)
    report._before.clear()
    old.mkdir(exist_ok=True)
    monkeypatch.setattr(os, "scandir", deletes_it_first)
    assert [run.name for run in report.runs()] == ["a"] and not old.exists()


def test_finished_trials_of_a_continued_study_are_not_to_come(tmp_path: Path) -> None:
    for name in ("0", "1", "2"):
        begin(made(tmp_path / name, 500))
    run_folder.mark_finished(tmp_path / "0", 1000, 7.5)
    run_folder.mark_failed(tmp_path / "1", [], "too hot")
    assert SweepReport(tmp_path, 10, of_study=True).head([]) == "0 of 8 done"
    assert SweepReport(tmp_path, 10).head([]) == "0 of 10 done"


def test_the_reports_end_with_the_sweep_and_say_nothing_of_ctrl_c(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for error in (RunError, KeyboardInterrupt):
        with pytest.raises(error), reported(tmp_path, 3):
            raise error
    assert capsys.readouterr().out == "Sweep: 0 of 3 done\n"  # printed for RunError alone
    before = set(threading.enumerate())
    with reported(tmp_path, 3):
        assert set(threading.enumerate()) - before
    *_, folder, compare = capsys.readouterr().out.splitlines()
    assert (folder, compare) == (
        f"Folder:  {tmp_path}",
        f"Compare: python plot.py {shlex.quote(str(tmp_path))} --report",
    )


def test_a_sweep_reports_its_runs(
    tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    run = ("env=ProbeTimeLimit-v0", *probes.SMALL, "num_train_steps=120", *SILENT)
    assert command("-m", *run, "seed=1,2", "hydra.sweep.dir=sw") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-5:-2] == ["Sweep: 2 of 2 done", *(f"  seed-{seed}: finished, return 5.0" for seed in (1, 2))]
    assert not any(line.startswith("Watch") for line in lines)
    assert sum(line == f"Folder: {tmp_path}/sw/seed-{seed}" for line in lines for seed in (1, 2)) == 2


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ("seed=1,2,3 env=cheetah_run,walker_walk", 6),
        ("seed=range(1,5)", 4),
        ("seed=1", 1),
        ("preset=[cpu,dmc_benchmark] seed=1,2", 56),
        ("hydra/sweeper=tuning seed=1,2", 40),
    ],
)
def test_the_number_of_a_sweeps_runs_is_known_before_it_begins(arguments: str, number: int) -> None:
    runs = read(["-m", *arguments.split()]).runs
    assert runs is not None and runs.number == number
