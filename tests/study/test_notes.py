"""What makes runs incomparable is said, and does not enter the numbers unnoticed."""

import os
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run

from study import figures, profiles, report, runs, summary, tables
from utils import UserError


def study(folder: Path) -> summary.Study:
    return summary.summarise(runs.find([str(folder)]), with_references=False)


def test_only_the_suites_tasks_are_on_its_scale(tmp_path: Path) -> None:
    for task in ("Pendulum", "my_package:MyEnv", "walker_walk", "cheetah_run"):
        make_run(tmp_path / task, [(10, -1300.0), (20, 500.0 if "_" in task and ":" not in task else -900.0)], env=task)
    shown = study(tmp_path)
    assert tables.table(shown).rows[-1][:4] == ("IQM of 2 tasks", "sac", "2", "500")
    assert any("leaves out Pendulum, my_package:MyEnv" in note for note in shown.notes)
    drawn = figures.draw_tasks(shown).axes
    below = {panel.get_title(): panel.get_ylim()[0] < -1000 for panel in drawn if panel.get_title()}
    assert below == {"Pendulum": True, "my_package:MyEnv": True, "cheetah_run": False, "walker_walk": False}


def test_a_final_return_is_that_of_the_longest_runs(tmp_path: Path) -> None:
    for seed, (length, value) in enumerate([(20, 10.0), (20, 12.0), (90, 900.0), (90, 910.0)]):
        make_run(tmp_path / f"a{seed}", [(length // 2, 0.0), (length, value)], seed=seed)
        make_run(tmp_path / f"b{seed}", [(45, 0.0), (90, 800.0 + seed)], seed=seed, actor_lr=1)
    shown = study(tmp_path)
    assert tables.table(shown).rows[0][2:] == ("4", "905 [900, 910] (2/4)", "90")
    (pair,) = profiles.improvements(profiles.final_returns(shown.groups))
    assert pair.value == 1.0
    assert any(note.startswith("Runs of cheetah_run have different lengths") for note in shown.notes)


def test_nearly_equal_settings_are_two_groups(tmp_path: Path) -> None:
    for seed, scale in enumerate((0.99999991, 0.99999992)):
        make_run(tmp_path / str(seed), [(20, 500.0)], seed=seed, reward_scale=scale)
    assert len(study(tmp_path).groups) == 2


def test_averages_over_other_tasks_are_not_to_be_compared(tmp_path: Path) -> None:
    for agent, other in (("sac", "cheetah_run"), ("crossq", "hopper_hop")):
        for task in ("walker_walk", other):
            make_run(tmp_path / f"{agent}-{task}", [(20, 500.0)], env=task, agent=agent)
    assert "The interquartile means are over different tasks: do not compare them." in study(tmp_path).notes


def test_runs_of_one_seed_are_no_repetitions(tmp_path: Path) -> None:
    for index in range(3):
        make_run(tmp_path / str(index), [(20, 500.0)], seed=max(1, index))
    assert any(note.endswith("too narrow: cheetah_run, sac.") for note in study(tmp_path).notes)


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "open", [(20, 500.0)])
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def refusing(folder: Any) -> Any:
        if str(folder).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(UserError, match=r"locked: Permission denied$"):
        runs.find([str(tmp_path)])


def test_gaps_in_a_log_are_gaps_in_the_figure_and_the_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [(100, 5.0), (200, 6.0), (300, 7.0)])
    header, first, *others = (run / "eval.csv").read_text().splitlines()
    gap = first.split(",")
    gap[4] = ""
    (run / "eval.csv").write_text("\n".join([header, ",".join(gap), *others, "9,inf,1,1,1,1,1"]) + "\n")
    shown = study(tmp_path)
    figures.draw_run(run, [], tmp_path / "curves")
    (line,) = report._data(shown)["panels"][0][0]["lines"]
    assert line["low"] == [None, 1.0, 2.0] and line["high"] == [10.0, 11.0, 12.0]


def test_small_numbers_stay_in_the_report(tmp_path: Path) -> None:
    for seed in (1, 2):
        run = make_run(tmp_path / str(seed), [(100, 5.0)], seed=seed)
        (run / "train.csv").write_text("episode,step,alpha_value\n1,100,0.00041\n")
    (panel,) = report._data(study(tmp_path))["panels"][1]
    assert panel["lines"][0]["values"] == [0.00041]
