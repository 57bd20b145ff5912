"""Runs are read, grouped and averaged to numbers computed by hand."""

import glob
import math
from pathlib import Path

import numpy as np
import pytest
from made_runs import make_run

from study import groups, profiles, runs, statistics, summary, tables
from utils import UserError

FLAT = [(10_000, 100.0), (20_000, 200.0)]


def summarise(folder: Path, with_references: bool = False) -> summary.Study:
    return summary.summarise(runs.find([str(folder)]), with_references)


def rows(folder: Path, with_references: bool = False) -> list[str]:
    return [" | ".join(row) for row in tables.tabulate(summarise(folder, with_references))[1:]]


def test_runs_are_found_in_folders_sweeps_and_patterns_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "a [1]"
    top.mkdir()
    monkeypatch.chdir(top)
    for name in ("day/one", "day/sweep/a", "day/sweep/b"):
        make_run(top / name, FLAT)
    for name in ("day/sweep/.hydra", "day/one/wandb"):  # no run, and inside a run
        (top / name).mkdir()
        (top / name / "config.yaml").write_text("env: x\n")

    def find(*paths: str) -> list[str]:
        return [str(run.folder.relative_to(top)) for run in runs.find(paths)]

    assert find("day") == ["day/one", "day/sweep/a", "day/sweep/b"]
    for pattern in ("d*/sweep/*", f"{glob.escape(str(tmp_path))}/a*/d*/sweep/*"):
        assert find(pattern, "day/sweep/a") == ["day/sweep/a", "day/sweep/b"]
    for path in ("", "night", "day/sweep/.hydra"):  # "": a shell's unset variable
        with pytest.raises(UserError, match=rf"'{path}': no run there \(a run's folder has a config.yaml\)"):
            find("day", path)


def test_a_log_is_read_up_to_its_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "eval.csv"
    path.write_text("episode,step,episode_reward,extra\n1,10,5,\n2,20,nan,1\n3,30,7,2\n4,40,12")
    assert runs.read(path) == {
        "episode": ([10, 20, 30], [1, 2, 3]),
        "step": ([10, 20, 30], [10, 20, 30]),
        "episode_reward": ([10, 30], [5, 7]),
        "extra": ([20, 30], [1, 2]),
    }
    assert runs.read(tmp_path / "none.csv") == {}


def test_a_run_knows_how_far_it_got_and_how_long_it_took(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "done", [(100, 1.0), (400, 2.0)])
    (folder / "train.csv").write_text("step,steps_per_second\n200,1\n400,2\n")  # 200 s, then 100 s
    make_run(tmp_path / "killed", FLAT, length=50_000)
    make_run(tmp_path / "waiting", [])
    (folder / "video").mkdir()
    for name in ("9000.mp4", "20000.mp4", ".30000.mp4.part.mp4", "best.mp4"):
        (folder / "video" / name).touch()
    done, killed, waiting = runs.find([str(tmp_path)])
    assert (done.finished, killed.finished, waiting.finished) == (True, False, False)
    assert (killed.last_step, waiting.last_step) == (20_000, 0)
    assert done.last_video == folder / "video/20000.mp4" and killed.last_video is None
    assert done.returns_by_minute == ([100 / 60, 5.0], [1.0, 2.0]) and killed.returns_by_minute == ([], [])


def labels(folder: Path) -> dict[str, list[str]]:
    """Maps each label and task to the names of the runs' folders."""
    found = groups.group_runs(runs.find([str(folder)]))
    return {f"{group.label} on {group.task}": [run.folder.name for run in group.runs] for group in found}


def test_seeds_are_grouped_and_what_differs_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "a1", FLAT, seed=1)
    make_run(tmp_path / "a2", FLAT, seed=2)
    make_run(tmp_path / "b", FLAT, agent__actor_lr=1e-3)
    make_run(tmp_path / "c", FLAT, env="walker_walk")
    make_run(tmp_path / "d", FLAT, agent="sac_v", agent__value="wide")  # the only sac_v: nothing to tell it from
    assert labels(tmp_path) == {
        "sac, actor_lr=0.0001 on cheetah_run": ["a1", "a2"],
        "sac, actor_lr=0.001 on cheetah_run": ["b"],
        "sac_v on cheetah_run": ["d"],
        "sac, actor_lr=0.0001 on walker_walk": ["c"],
    }


def test_what_follows_from_the_task_is_not_named(tmp_path: Path) -> None:
    for env, repeat in (("cheetah_run", 4), ("walker_walk", 2)):
        make_run(tmp_path / env, FLAT, env=env, action_repeat=repeat)
    assert labels(tmp_path) == {"sac on cheetah_run": ["cheetah_run"], "sac on walker_walk": ["walker_walk"]}
    make_run(tmp_path / "c", FLAT, env="walker_walk", action_repeat=8)
    assert {label.split("=")[1].split()[0] for label in labels(tmp_path)} == {"4", "2", "8"}


def test_what_changes_no_training_step_tells_no_groups_apart(tmp_path: Path) -> None:
    buffer = {"_target_": "replay_buffer.ReplayBuffer", "capacity": 20_000, "seed": 3}
    make_run(tmp_path / "a", FLAT, replay_buffer=buffer)
    settings = {"device": "cuda", "eval_frequency": 5, "save_video": True, "evaluator__seed": 7, "num_threads": 8}
    make_run(tmp_path / "b", FLAT, seed=2, length=50_000, replay_buffer=buffer | {"capacity": 50_000}, **settings)
    assert labels(tmp_path) == {"sac on cheetah_run": ["a", "b"]}
    small = {"replay_buffer_capacity": 5000, "replay_buffer": buffer | {"capacity": 5000}}
    make_run(tmp_path / "c", FLAT, seed=5, **small)  # drops rows
    assert {label.split(" on")[0] for label in labels(tmp_path)} == {
        "sac, replay_buffer_capacity=all",
        "sac, replay_buffer_capacity=5000",
    }


def test_a_value_that_another_key_repeats_is_named_once_and_many_keys_are_counted(tmp_path: Path) -> None:
    make_run(tmp_path / "a", FLAT)
    make_run(tmp_path / "b", FLAT, reward_scale=0.99999991, agent__reward_scale=0.99999991)
    assert [label.split(" on")[0] for label in labels(tmp_path)] == [
        "sac, reward_scale=1",
        "sac, reward_scale=0.99999991",
    ]
    make_run(tmp_path / "c", FLAT, agent__one=1, agent__two=2, agent__actor_lr=3.0, agent__critic__lr=4, agent__lr=5)
    names = [label.removesuffix(" on cheetah_run") for label in labels(tmp_path)]
    assert len(set(names)) == 3
    assert names[0] == "sac, reward_scale=1, actor_lr=0.0001, one=absent, 3 more (1)"
    differing = groups.differences(runs.find([str(tmp_path)]))
    assert differing["agent.two"] == ["absent", "absent", 2] and "seed" not in differing


def test_the_mean_and_its_interval() -> None:
    steps = [10, 20]
    curves = [(steps, [value, 2 * value]) for value in (100.0, 130.0, 160.0, 190.0)]
    average, again = statistics.average([curves]), statistics.average([curves])
    assert average.value.tolist() == [145, 290] and average.num_runs.tolist() == [4, 4]
    assert (average.low > [100, 200]).all() and (average.high < [190, 380]).all()
    # The mean of a resample of four has a standard deviation of 33.5 / 2; 95 % of them lie within 1.96 of these.
    np.testing.assert_allclose(average.high - average.low, [2 * 1.96 * 16.8, 4 * 1.96 * 16.8], rtol=0.15)
    np.testing.assert_allclose(average.low[0] * 2, average.low[1])  # same resamples at all steps
    assert again.low.tolist() == average.low.tolist()
    three = statistics.average([[([10.0], [value]) for value in (1.0, 2.0, 6.0)]])
    assert three.at_end[:3] == (3.0, 1.0, 6.0)  # their range
    assert [statistics.has_interval(counts) for counts in ([2], [3], [4], [3, 3], [2, 5])] == [0, 0, 1, 1, 0]


def test_a_run_counts_as_far_as_it_goes_and_no_further() -> None:
    average = statistics.average([[([10, 20, 30], [0.0, 10.0, 20.0]), ([10, 30, 50], [10.0, 30.0, 50.0]), ([], [])]])
    assert average.steps.tolist() == [10, 20, 30, 50]
    assert average.value.tolist() == [5, 15, 25, 50]  # at 20 the second run is interpolated
    assert average.num_runs.tolist() == [2, 2, 2, 1] and average.total == 3
    assert math.isnan(average.low[-1]) and average.low[0] == 0 and average.high[0] == 10
    assert statistics.average([[([], [])]]).steps.size == 0
    assert statistics.average([[([10, 20], [0.0, 10.0])]], [15, 25]).value.tolist() == [5]
    long = statistics.average([[(range(300), np.arange(300.0) + run) for run in range(4)]])  # more than one chunk
    assert long.value.tolist() == (np.arange(300) + 1.5).tolist() and np.allclose(long.low - long.low[0], range(300))


def test_the_interquartile_mean_is_that_of_the_middle_half_and_is_resampled_within_tasks() -> None:
    value, at_least, at_most, count = statistics.of_scores([[1.0, 2.0, 3.0, 4.0], [1000.0] * 4]).at_end
    assert value == (3 + 4 + 1000 + 1000) / 4 and count == 8
    # Every resample has four runs of each task, so its middle half is two thousands and two small numbers.
    assert 500.5 <= at_least <= at_most <= 502
    assert statistics.of_scores([[5.0], [7.0]]).at_end[0] == 6
    assert math.isnan(statistics.of_scores([[5.0], [7.0]]).at_end[1])
    alone = statistics.of_scores([[0.0, 10.0], [100.0]])  # the second task's only run is in every resample
    assert alone.at_end[:3] == (110 / 3, 100 / 3, 40)
    average = statistics.average([[([10, 20], [1.0, 1.0])], [([10], [3.0])]])
    assert average.steps.tolist() == [10] and average.value.tolist() == [2]  # ends where a task has no run


def test_the_table_at_the_usual_steps_and_every_point_in_the_csv(tmp_path: Path) -> None:
    for seed, value in ((1, 100.0), (2, 200.0)):
        make_run(tmp_path / f"c{seed}", [(50_000, value), (150_000, value + 50)], seed=seed)
        make_run(tmp_path / f"w{seed}", [(100_000, value), (150_000, value)], env="walker_walk", seed=seed)
    make_run(tmp_path / "c3", [(50_000, 300.0), (90_000, 300.0)], seed=3, length=150_000)
    make_run(tmp_path / "p", [(50_000, -147.0)], env="Pendulum-v1")
    make_run(tmp_path / "u", [(20_000, 1.0)], env="hopper_hop", length=60_000)
    study = summarise(tmp_path)
    assert tables.tabulate(study)[0] == ("task", "agent", "runs", "100k", "final", "at step", "equal time")
    assert rows(tmp_path)[:4] == [
        "Pendulum-v1 | sac | 1 | - | -147 | 50k | -",
        "cheetah_run | sac | 2 of 3 finished | 175 [125, 225] (2/3) | 200 [150, 250] | 150k | -",
        "hopper_hop | sac | 0 of 1 finished | - | - | 20k of 60k | -",
        "walker_walk | sac | 2 | 150 [100, 200] | 150 [100, 200] | 150k | -",
    ]
    assert "| cheetah_run | sac | 2 of 3 finished |" in tables.write_markdown(study)
    assert any("leaves out Pendulum-v1" in note for note in study.notes)
    assert any("2 of 7 runs are unfinished" in note for note in study.notes)
    lines = tables.write_points(study).splitlines()
    assert lines[0] == "task,agent,step,value,low,high,runs" and len(lines) == 8
    assert lines[1] == "Pendulum-v1,sac,50000,-147,,,1" and lines[4] == "cheetah_run,sac,150000,200,150,250,2"


def test_returns_are_compared_after_equal_time(tmp_path: Path) -> None:
    for agent, speed in (("sac", 10), ("droq", 5)):
        run = make_run(tmp_path / agent, [(3000, 100.0), (6000, 200.0)], agent=agent)
        (run / "train.csv").write_text(f"step,steps_per_second\n6000,{speed}\n")
    assert [row.rpartition("| ")[2] for row in rows(tmp_path)] == ["100 at 10 min", "200 at 10 min"]


@pytest.mark.parametrize(
    ("pixels", "ours", "theirs"),
    [
        (False, 300, ["pytorch_sac | 3 | 214 | 214", "SAC in SimBa | 10 | 329 | 329"]),
        (True, 300, ["DrQ | 10 | 367 | 367"]),
    ],
)
def test_published_results_stand_beside_ours_at_the_same_steps(
    tmp_path: Path, pixels: bool, ours: int, theirs: list[str]
) -> None:
    make_run(tmp_path / "a", [(90_000, 1.0), (100_000, ours)], from_pixels=pixels)
    make_run(tmp_path / "b", [(10_000, 1.0)], env="lqr_lqr_2_1")
    expected = [
        f"cheetah_run | {row} | 100k | -"
        for row in (f"sac | 1 | {ours} | {ours}", *(f"published: {row}" for row in theirs))
    ]
    assert rows(tmp_path, with_references=True)[: len(expected)] == expected
    study = summarise(tmp_path, with_references=True)
    assert study.references["cheetah_run"][0].steps[-1] == 100_000 and study.references["lqr_lqr_2_1"] == []
    assert study.notes[-1].endswith("no published result, up to the last step of the runs, for lqr_lqr_2_1.")


def test_a_final_return_is_that_of_the_longest_runs(tmp_path: Path) -> None:
    for seed, (length, value) in enumerate([(20, 10.0), (20, 12.0), (90, 900.0), (90, 910.0)]):
        make_run(tmp_path / f"a{seed}", [(length // 2, 0.0), (length, value)], seed=seed)
        make_run(tmp_path / f"b{seed}", [(45, 0.0), (90, 800.0 + seed)], seed=seed, actor_lr=1)
    study = summarise(tmp_path)
    assert tables.tabulate(study)[1][2:] == ("4", "905 [900, 910] (2/4)", "90", "-")
    (pair,) = profiles.improvements(profiles.final_returns(study.groups))
    assert pair.value == 1.0
    assert any(note.startswith("Runs of cheetah_run have different lengths") for note in study.notes)
