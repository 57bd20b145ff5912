"""Runs are read, grouped and averaged to numbers computed by hand."""

import glob
import math
from pathlib import Path

import numpy as np
import pytest
from made_runs import make_run

from study import groups, references, runs, statistics, summary, tables
from utils import UserError

FLAT = [(10_000, 100.0), (20_000, 200.0)]


def test_runs_are_found_in_folders_sweeps_and_patterns_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "a [1]"
    top.mkdir()
    monkeypatch.chdir(top)
    for name in ("day/one", "day/sweep/a", "day/sweep/b"):
        make_run(top / name, FLAT)
    (top / "day/sweep/.hydra").mkdir()
    (top / "day/sweep/.hydra/config.yaml").write_text("env: x\n")
    (top / "day/one/wandb").mkdir()
    (top / "day/one/wandb/config.yaml").write_text("a: 1\n")  # inside a run, so not another run

    def found(*paths: str) -> list[str]:
        return [str(run.folder.relative_to(top)) for run in runs.find(paths)]

    assert found("day") == ["day/one", "day/sweep/a", "day/sweep/b"]
    assert found("day/one") == ["day/one"]
    for pattern in ("d*/sweep/*", f"{glob.escape(str(tmp_path))}/a*/d*/sweep/*"):
        assert found(pattern, "day/sweep/a") == ["day/sweep/a", "day/sweep/b"]
    with pytest.raises(UserError, match="night: no such folder"):
        found("day", "night")
    with pytest.raises(UserError, match=r"a\*\*b: "):
        runs.find(["a**b"])
    with pytest.raises(UserError, match=r"video: no run in it .*config.yaml"):
        (top / "video").mkdir()
        found("video")


MISTYPED = {
    "env": "env: 5, seed: 1, num_train_steps: 9, agent: {name: sac}",
    "seed": "env: a, seed: x, num_train_steps: 9, agent: {name: sac}",
    "num_train_steps": "env: a, seed: 1, num_train_steps: [9], agent: {name: sac}",
    "agent.name": "env: a, seed: 1, num_train_steps: 9, agent: sac",
}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("env: a\nseed: [", r"cannot be read \(did not find .*, by line 3\)"),
        ("env: a\nseed: 1\n", r"num_train_steps, agent\.name missing"),
        ("- 1\n", "not the settings"),
        *((f"{{{text}}}\n", rf"\({name} missing, or of another type") for name, text in MISTYPED.items()),
    ],
)
def test_a_config_that_is_none_is_named(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"config\.yaml: .*{reason}"):
        runs.find([str(tmp_path)])


def test_a_log_is_read_up_to_its_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "eval.csv"
    path.write_text("episode,step,episode_reward,extra\n1,10,5,\n2,20,nan,1\n3,30,7,2\n4,40,12")
    assert runs.read(path) == {
        "episode": ([10, 20, 30], [1, 2, 3]),
        "step": ([10, 20, 30], [10, 20, 30]),
        "episode_reward": ([10, 30], [5, 7]),
        "extra": ([20, 30], [1, 2]),
    }
    for damaged in (b"step,episode_reward\n10,oops\n", "step,Läufer\n10,1\n".encode("latin-1")):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"eval\.csv: not a log of a run"):
            runs.read(path)
    assert runs.read(tmp_path / "none.csv") == {}


def test_a_run_knows_how_far_it_got(tmp_path: Path) -> None:
    make_run(tmp_path / "done", FLAT)
    make_run(tmp_path / "killed", FLAT, length=50_000)
    make_run(tmp_path / "waiting", [])
    (tmp_path / "done/video").mkdir()
    for name in ("9000.mp4", "20000.mp4", ".30000.mp4.0123abcd.part.mp4", "best.mp4"):
        (tmp_path / "done/video" / name).touch()
    done, killed, waiting = runs.find([str(tmp_path)])
    assert (done.finished, killed.finished, waiting.finished) == (True, False, False)
    assert (killed.last_step, waiting.last_step) == (20_000, 0)
    assert done.last_video == done.folder / "video/20000.mp4" and killed.last_video is None


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


def test_runs_are_told_apart_by_their_environments_arguments_and_wrappers(tmp_path: Path) -> None:
    noise = {"_target_": "my_package.Noise", "_partial_": True, "std": 0.20, "only_in": "training"}
    make_run(tmp_path / "older", FLAT)
    make_run(tmp_path / "plain", FLAT, env_wrappers=[], eval_sample=False, evaluator__sample=False, seed=2)
    make_run(tmp_path / "noisy", FLAT, env_wrappers=[noise])
    make_run(tmp_path / "rough", FLAT, env_kwargs__friction=0.5)
    assert labels(tmp_path) == {
        "sac, env_wrappers=[Noise(std=0.2, only_in=training)], friction=absent on cheetah_run": ["noisy"],
        "sac, env_wrappers=[], friction=absent on cheetah_run": ["older", "plain"],
        "sac, env_wrappers=[], friction=0.5 on cheetah_run": ["rough"],
    }


def test_what_a_formula_takes_from_the_task_is_not_named(tmp_path: Path) -> None:
    def make(name: str, env: str, repeat: int, written: int | str) -> None:
        folder = make_run(tmp_path / name, FLAT, env=env, action_repeat=repeat)
        (folder / ".hydra").mkdir()
        (folder / ".hydra/config.yaml").write_text(f"action_repeat: {written}\n")

    make("a", "cheetah_run", 4, "${repeat_of:${env}}")
    make("b", "walker_walk", 2, "${repeat_of:${env}}")
    assert labels(tmp_path) == {"sac on cheetah_run": ["a"], "sac on walker_walk": ["b"]}
    make("c", "walker_walk", 8, 8)  # the user's own choice
    assert set(labels(tmp_path)) == {
        "sac, action_repeat=4 on cheetah_run",
        "sac, action_repeat=2 on walker_walk",
        "sac, action_repeat=8 on walker_walk",
    }


def test_what_changes_no_training_step_tells_no_groups_apart(tmp_path: Path) -> None:
    make_run(tmp_path / "a", FLAT)
    now = {
        "from_pixels": False,
        "preload_share": 0.0,
        "offline_updates": 0,
        "eval_in_background": True,
        "agent__encoder": None,
    }
    make_run(tmp_path / "now", FLAT, seed=4, **now)
    make_run(tmp_path / "b", FLAT, seed=2, length=50_000, device="cuda", eval_frequency=5, save_video=True)
    buffer = {"_target_": "replay_buffer.ReplayBuffer", "_partial_": True, "capacity": 20_000, "seed": 3}
    make_run(tmp_path / "c", FLAT, seed=3, evaluator__seed=7, log_save_tb=False, num_threads=8, replay_buffer=buffer)
    assert labels(tmp_path) == {"sac on cheetah_run": ["a", "b", "c", "now"]}
    make_run(tmp_path / "d", FLAT, seed=5, replay_buffer_capacity=5000, replay_buffer__capacity=5000)  # drops rows
    assert set(labels(tmp_path)) == {
        "sac, replay_buffer_capacity=all on cheetah_run",
        "sac, replay_buffer_capacity=5000 on cheetah_run",
    }
    make_run(tmp_path / "e", FLAT, seed=6, replay_buffer=buffer | {"_target_": "mine.Buffer"})
    assert any("_target_=mine.Buffer" in label for label in labels(tmp_path))


def test_a_value_that_another_key_repeats_is_named_once_and_many_keys_are_counted(tmp_path: Path) -> None:
    make_run(tmp_path / "a", FLAT)
    make_run(tmp_path / "b", FLAT, reward_scale=5, agent__reward_scale=5)
    assert list(labels(tmp_path)) == ["sac, reward_scale=1 on cheetah_run", "sac, reward_scale=5 on cheetah_run"]
    make_run(tmp_path / "c", FLAT, agent__one=1, agent__two=2, agent__actor_lr=3.0, agent__critic__lr=4, agent__lr=5)
    names = [label.removesuffix(" on cheetah_run") for label in labels(tmp_path)]
    assert len(set(names)) == 3
    assert names[0] == "sac, reward_scale=1, actor_lr=0.0001, one=absent, 3 more (1)"
    differing = groups.differences(runs.find([str(tmp_path)]))
    assert differing["agent.reward_scale"] == [1, 5, 1] and differing["agent.two"] == ["absent", "absent", 2]
    assert "seed" not in differing


def test_the_mean_and_its_interval() -> None:
    steps = [10, 20]
    average = statistics.mean([(steps, [value, 2 * value]) for value in (100.0, 130.0, 160.0, 190.0)])
    assert average.value.tolist() == [145, 290] and average.num_runs.tolist() == [4, 4]
    assert (average.low > [100, 200]).all() and (average.high < [190, 380]).all()
    # The mean of a resample of four has a standard deviation of 33.5 / 2; 95 % of them lie within 1.96 of these.
    np.testing.assert_allclose(average.high - average.low, [2 * 1.96 * 16.8, 4 * 1.96 * 16.8], rtol=0.15)
    np.testing.assert_allclose(average.low * 2, [average.low[1], average.low[1] * 2])  # same resamples at all steps
    again = statistics.mean([(steps, [value, 2 * value]) for value in (100.0, 130.0, 160.0, 190.0)])
    assert again.low.tolist() == average.low.tolist()


def test_a_run_counts_as_far_as_it_goes_and_no_further() -> None:
    average = statistics.mean([([10, 20, 30], [0.0, 10.0, 20.0]), ([10, 30, 50], [10.0, 30.0, 50.0]), ([], [])])
    assert average.steps.tolist() == [10, 20, 30, 50]
    assert average.value.tolist() == [5, 15, 25, 50]  # at 20 the second run is interpolated
    assert average.num_runs.tolist() == [2, 2, 2, 1] and average.total == 3
    assert math.isnan(average.low[-1]) and average.low[0] == 0 and average.high[0] == 10
    assert statistics.mean([([], [])]).steps.size == 0
    assert statistics.mean([([10, 20], [0.0, 10.0])], [15, 25]).value.tolist() == [5]


def test_the_interquartile_mean_is_that_of_the_middle_half_and_is_resampled_within_tasks() -> None:
    low, high = [1.0, 2.0, 3.0, 4.0], [1000.0, 1000.0, 1000.0, 1000.0]
    value, at_least, at_most, count = statistics.of_scores([low, high]).at_end
    assert value == (3 + 4 + 1000 + 1000) / 4 and count == 8
    # Every resample has four runs of each task, so its middle half is two thousands and two small numbers.
    assert 500.5 <= at_least <= at_most <= 502
    assert statistics.of_scores([[5.0], [7.0]]).at_end[0] == 6
    assert math.isnan(statistics.of_scores([[5.0], [7.0]]).at_end[1])
    alone = statistics.of_scores([[0.0, 10.0], [100.0]])  # the second task's only run is in every resample
    assert alone.at_end[:3] == (110 / 3, 100 / 3, 40)


def test_the_interquartile_mean_ends_where_a_task_has_no_run() -> None:
    average = statistics.interquartile_mean([[([10, 20], [1.0, 1.0])], [([10], [3.0])]])
    assert average.steps.tolist() == [10] and average.value.tolist() == [2]


def rows(folder: Path, with_references: bool = False) -> list[str]:
    study = summary.summarise(runs.find([str(folder)]), with_references)
    return [" | ".join(row) for row in tables.table(study).rows]


def test_the_table_at_the_usual_steps(tmp_path: Path) -> None:
    for seed, value in ((1, 100.0), (2, 200.0)):
        make_run(tmp_path / f"c{seed}", [(50_000, value), (150_000, value + 50)], seed=seed)
        make_run(tmp_path / f"w{seed}", [(100_000, value), (150_000, value)], env="walker_walk", seed=seed)
    make_run(tmp_path / "c3", [(50_000, 300.0), (90_000, 300.0)], seed=3, length=150_000)
    make_run(tmp_path / "p", [(50_000, -147.0)], env="Pendulum-v1")
    study = summary.summarise(runs.find([str(tmp_path)]), with_references=False)
    assert tables.table(study).columns == ("task", "agent", "runs", "100k", "final", "at step")
    assert rows(tmp_path) == [
        "Pendulum-v1 | sac | 1 | - | -147 | 50k",
        "cheetah_run | sac | 2 of 3 finished | 175 [125, 225] (2/3) | 200 [150, 250] | 150k",
        "walker_walk | sac | 2 | 150 [100, 200] | 150 [100, 200] | 150k",
        "IQM of 2 tasks | sac | 4 of 5 finished | 162 [112, 212] (4/5) | 175 [125, 225] | 150k",
    ]
    assert any("leaves out Pendulum-v1" in note for note in study.notes)
    assert any("1 of 6 runs are unfinished" in note for note in study.notes)


def test_a_group_without_a_finished_run_has_no_final_score(tmp_path: Path) -> None:
    make_run(tmp_path / "a", FLAT, length=100_000)
    make_run(tmp_path / "b", [], seed=2, length=100_000)
    assert rows(tmp_path) == ["cheetah_run | sac | 0 of 2 finished | - | 20k of 100k"]


def test_published_results_stand_beside_ours_at_the_same_steps(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [(90_000, 1.0), (100_000, 300.0)])
    make_run(tmp_path / "b", [(10_000, 1.0)], env="lqr_lqr_2_1")
    assert rows(tmp_path, with_references=True)[:3] == [
        "cheetah_run | sac | 1 | 300 | 300 | 100k",
        "cheetah_run | published: pytorch_sac | 3 | 214 | 214 | 100k",
        "cheetah_run | published: SAC in SimBa | 10 | 329 | 329 | 100k",
    ]
    shown = summary.summarise(runs.find([str(tmp_path)]), with_references=True).references
    assert shown["cheetah_run"][0].steps[-1] == 100_000 and shown["lqr_lqr_2_1"] == []


def test_published_results_from_pixels_stand_beside_runs_from_pixels(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [(100_000, 300.0)], from_pixels=True)
    assert rows(tmp_path, with_references=True)[:2] == [
        "cheetah_run | sac | 1 | 300 | 300 | 100k",
        "cheetah_run | published: DrQ | 10 | 367 | 367 | 100k",
    ]


@pytest.mark.parametrize(("path", "num_tasks"), [(references.SUITE, 27), (references.PIXELS, 15)])
def test_every_published_curve_rises_in_steps_and_lies_on_the_suites_scale(path: Path, num_tasks: int) -> None:
    published = references.published(path)
    assert len(published) >= num_tasks
    curves = [curve for of_task in published.values() for curve in of_task]
    for curve in curves:
        assert list(curve.steps) == sorted(set(curve.steps)) and curve.num_seeds >= 1
        assert 0 <= min(curve.returns) <= max(curve.returns) <= 1000
    assert math.isnan(curves[0].at(1)) and curves[0].at(curves[0].steps[3]) == curves[0].returns[3]


def test_every_point_is_in_the_csv(tmp_path: Path) -> None:
    make_run(tmp_path / "a", FLAT)
    make_run(tmp_path / "b", FLAT[:1], seed=2, length=20_000)
    study = summary.summarise(runs.find([str(tmp_path)]), with_references=False)
    assert tables.points(study).splitlines() == [
        "task,agent,step,value,low,high,runs",
        "cheetah_run,sac,10000,100,100,100,2",
        "cheetah_run,sac,20000,200,,,1",
    ]


def test_few_runs_have_a_range_and_no_interval() -> None:
    assert [statistics.has_interval(counts) for counts in ([2], [3], [4], [3, 3], [2, 5])] == [0, 0, 1, 1, 0]
    curves = [([10.0], [value]) for value in (1.0, 2.0, 6.0)]
    assert statistics.mean(curves).at_end[:3] == (3.0, 1.0, 6.0)
    four = statistics.mean([*curves, ([10.0], [3.0])])
    assert 1.0 < four.low[0] < four.value[0] < four.high[0] < 6.0


@pytest.mark.parametrize(
    ("env", "step", "reason"),
    [
        ("Pendulum-v1", 50_000, "there is no published result for it"),
        ("cheetah_run", 5000, "published results begin at step 20000, and runs end at 5000"),
    ],
)
def test_a_reference_that_adds_nothing_says_why(tmp_path: Path, env: str, step: int, reason: str) -> None:
    make_run(tmp_path / "run", [(step, 1.0)], env=env)
    found = runs.find([str(tmp_path)])
    assert summary.summarise(found, True).notes == [f"--reference adds nothing to {env}: {reason}."]
    assert summary.summarise(found, False).notes == []


def test_published_results_are_in_a_package() -> None:
    folder = Path(runs.__file__).parent
    assert references.SUITE.is_relative_to(folder) and references.PIXELS.is_relative_to(folder)
    assert references.SUITE.exists() and references.PIXELS.exists()


def test_what_a_run_notes_of_itself_may_be_damaged(tmp_path: Path) -> None:
    (run,) = runs.find([str(make_run(tmp_path / "run", FLAT))])
    assert run.provenance == []
    for text in ("[1]", "{", "{}", "\xff"):
        (run.folder / "provenance.json").write_text(text, encoding="latin-1")
        assert runs.Run(run.folder, run.config).provenance == []
