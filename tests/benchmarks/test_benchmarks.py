"""The arithmetic and the records of the benchmarks and studies that compare trainings."""

import sys
from pathlib import Path

import fast
import numpy as np
import pytest
import search
import strong
import suite
import training
from records import Records


def test_a_curve_counts_the_seconds_of_the_episodes_before_each_evaluation(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("episode,step,duration\n1,1000,0.5\n2,2000,2\n3,3000,3\n4,4000,4\n")
    (tmp_path / "eval.csv").write_text("step,episode_reward,duration\n2000,10,100\n4000,30,100\n")
    found = training.curve(tmp_path)
    assert found == ([2000, 4000], [2.5, 9.5], [10, 30])
    assert [training.at(found, seconds) for seconds in (0, 1.25, 2.5, 6, 9.5)] == [0, 5, 10, 20, 30]


def test_a_job_that_is_done_is_not_made_again_and_one_that_fails_is_told_of(tmp_path: Path) -> None:
    def job(name: str, code: int, word: str = "") -> training.Job:
        script = f"import pathlib; pathlib.Path({str(tmp_path / name)!r}).mkdir(); {word!r}; "
        script += f"open({str(tmp_path / name / 'finished.json')!r}, 'w').close(); raise SystemExit({code})"
        return training.Job(tmp_path / name, [sys.executable, "-c", script])

    training.finish([job("one", 0)])
    (tmp_path / "one" / "mark").touch()
    training.finish([job("one", 0)])
    assert (tmp_path / "one" / "mark").exists()
    training.finish([job("one", 0, "another command")])
    assert not (tmp_path / "one" / "mark").exists()
    with pytest.raises(RuntimeError, match=r"bad\.log"):
        training.finish([job("bad", 3)])
    unfinished = job("later", 0)._replace(resumes=True)
    unfinished.folder.mkdir()  # no record says that this command made it, so it is deleted
    training.finish([unfinished])
    assert training.done(unfinished)
    assert not training.done(job("bad", 3))


def test_a_score_is_the_mean_return_of_the_second_half_of_the_time() -> None:
    found = training.Curve([10, 20], [1.0, 2.0], [10.0, 30.0])
    assert search.late_return(found, 2.0) == pytest.approx(20)
    assert training.mean_and_spread([1.0, 3.0]) == "2 ± 1"
    assert training.mean_and_spread([4.0]) == "4"


def test_the_ratio_is_of_interquartile_means_over_tasks_and_seeds() -> None:
    cpu = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 80.0]])
    found = fast.ratio_of_interquartile_means({"fast": 3 * cpu, "cpu": cpu})
    assert (found["cpu"], found["fast"], found["ratio"]) == (4.5, 13.5, 3)
    assert 1 < found["low"] < 3 < found["high"]


def test_runs_that_are_recorded_are_read_again_by_their_names(tmp_path: Path) -> None:
    records = Records(tmp_path / "results" / "runs.csv", ("task", "seed"))
    assert records.read() == {}
    first, second = training.Curve([10, 20], [1.0, 2.0], [3.0, 4.0]), training.Curve([10], [5.5], [6.25])
    records.add(("walker_run", 1), first)
    records.add(("walker_run, wide", 2), second)
    assert records.read() == {("walker_run", "1"): first, ("walker_run, wide", "2"): second}
    assert records.path.read_text().startswith("task,seed,step,return,seconds\nwalker_run,1,10,3.0,1.0\n")


def test_a_study_takes_up_only_runs_with_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = training.Curve([50_000], [1.0], [2.0])
    monkeypatch.setattr(suite, "RETURNS", Records(tmp_path / "suite.csv", suite.RETURNS.names))
    suite.RETURNS.add(("walker_run", 1, suite.settings()), run)
    suite.RETURNS.add(("walker_run", 2, "others"), run)
    assert suite.recorded() == {("walker_run", 1): run}
    monkeypatch.setattr(strong, "RUNS", Records(tmp_path / "strong.csv", strong.RUNS.names))
    part = next(iter(strong.WITHOUT))
    strong.RUNS.add((part, "walker_run", 1, 50_000, strong.settings(part)), run)
    strong.RUNS.add((part, "walker_run", 2, 100_000, strong.settings(part)), run)
    strong.RUNS.add((part, "walker_run", 3, 50_000, "others"), run)
    assert strong.recorded(50_000) == {(part, "walker_run", 1): run}


def test_tasks_below_plain_sac_are_named_the_farthest_first() -> None:
    ours = {
        "a": {1: {suite.STEPS: 90.0}},
        "b": {1: {suite.STEPS: 10.0}, 2: {suite.STEPS: 30.0}},
        "c": {1: {suite.STEPS: 50.0}, 2: {suite.STEPS: 149.0}},  # behind by less than its seeds' standard deviation
        "d": {1: {suite.STEPS: 100.0}},
    }
    others = {
        suite.PLAIN[0]: {task: {suite.STEPS: 100.0} for task in "abcd"},
        suite.PLAIN[1]: {"a": {suite.STEPS: 70.0}},
    }
    assert suite.below_plain_sac(ours, others) == "Below plain SAC: b (20 ± 14; 100), a (90; 100)"
    assert suite.below_plain_sac({"d": ours["d"]}, others) == "Below plain SAC: none"
