"""Performance profiles and probabilities of improvement agree with those computed by hand and by scipy."""

from pathlib import Path

import numpy as np
import pytest
from made_runs import make_run

from study import figures, profiles, runs, summary, tables

RETURNS = {  # agent -> task -> final returns of seeds 1, 2, ...
    "sac": {"cheetah_run": [100.0, 200.0, 300.0, 400.0], "walker_walk": [500.0, 900.0, 950.0]},
    "sac_v": {"cheetah_run": [200.0, 300.0, 250.0], "walker_walk": [100.0, 300.0, 950.0]},
}


def study(folder: Path, returns: dict[str, dict[str, list[float]]]) -> summary.Study:
    for agent, tasks in returns.items():
        for task, ends in tasks.items():
            for seed, end in enumerate(ends):
                make_run(folder / f"{agent}-{task}-{seed}", [(10, 0.0), (20, end)], env=task, seed=seed, agent=agent)
    return summary.summarise(runs.find([str(folder)]), with_references=False)


def arrays(*tasks: list[float]) -> list[np.ndarray]:
    return [np.array(task) for task in tasks]


def test_a_profile_is_the_mean_over_tasks_of_the_share_of_runs_above() -> None:
    tasks = arrays([100.0, 200.0, 300.0, 400.0], [0.0, 1000.0])
    shares = profiles.share_above(tasks, np.array([-1.0, 0.0, 200.0, 250.0, 999.0, 1000.0]))
    assert shares.tolist() == [1, (1 + 1 / 2) / 2, (2 / 4 + 1 / 2) / 2, (2 / 4 + 1 / 2) / 2, 1 / 4, 0]
    resampled = profiles.share_above([np.array([[1.0, 3.0], [3.0, 3.0]]), np.array([[1.0, 1.0], [1.0, 3.0]])], np.r_[2])
    assert resampled.tolist() == [[1 / 4], [3 / 4]]


def test_runs_are_resampled_within_each_task_and_each_group() -> None:
    ends = {"a": {"low": np.arange(20.0) * 10, "high": np.full(20, 900.0)}, "b": {"low": np.arange(20.0) * 10 - 5}}
    (profile,) = profiles.performance_profiles(ends)
    assert profile.tasks == ("low", "high")
    assert (profile.low <= profile.value).all() and (profile.value <= profile.high).all()
    # From 190 to 890, all of task high and none of task low is above: the share is 1/2 in every resample.
    assert (profile.low[19:90] == 0.5).all() and (profile.high[19:90] == 0.5).all() and profile.high[90] == 0
    # At 90, half of task low is above. The share of its 20 runs has a standard deviation of sqrt(0.25 / 20), and the
    # mean over both tasks half of that; 95 % of resamples lie within 1.96 standard deviations.
    assert profile.high[9] - profile.low[9] == pytest.approx(1.96 * np.sqrt(0.25 / 20), rel=0.15)
    (pair,) = profiles.improvements(ends)
    assert pair.tasks == ("low",) and pair.value == pytest.approx(210 / 400)
    assert (pair.low, pair.high) == pytest.approx((0.34, 0.7), abs=0.02)  # as scipy.stats.bootstrap has them
    assert profiles.improvements(ends) == [pair]


def test_a_study_has_a_profile_per_group_and_a_probability_per_pair(tmp_path: Path) -> None:
    found = study(tmp_path, RETURNS)
    assert [profile.label for profile in found.profiles] == ["sac", "sac_v"]
    assert found.profiles[0].value[[0, 20, 90, 95]] == pytest.approx([1, (1 / 2 + 1) / 2, 1 / 6, 0])
    header, row = tables.tabulate_improvements(found)
    by_hand = ((0 + 1 / 2 + 2 + 1 / 2 + 3) / 12 + (2 + 2 + 2 + 1 / 2) / 9) / 2
    assert header == ("X", "Y", "P(X > Y)", "tasks") and row[:2] == ("sac", "sac_v") and row[3] == "2"
    assert row[2].startswith(f"{by_hand:.2f} [")
    assert f"| {' | '.join(row)} |" in tables.write_markdown(found)
    assert tables.PROFILE_LEGEND in tables.write_markdown(found)
    curves = figures.make_figure(figures.make_panels(found)["profiles"]).axes[0].lines
    np.testing.assert_array_equal(curves[1].get_ydata(), found.profiles[1].value)
    assert curves[1].get_xdata(orig=True)[[0, -1]].tolist() == [0, 1]  # type: ignore[index, union-attr, call-overload]


def test_two_runs_a_task_have_a_profile_and_no_interval(tmp_path: Path) -> None:
    found = study(tmp_path, {agent: {task: ends[:2] for task, ends in of.items()} for agent, of in RETURNS.items()})
    assert len(found.profiles) == 2 and np.isnan([found.profiles[0].low, found.profiles[0].high]).all()
    assert tables.tabulate_improvements(found)[1:] == [("sac", "sac_v", "0.56", "2")]  # (1 / 8 + 1) / 2


@pytest.mark.parametrize(
    ("tasks", "num_profiles", "num_pairs"),
    [
        ({"cheetah_run": [1.0, 2.0]}, 0, 1),
        ({"cheetah_run": [1.0, 2.0], "walker_walk": [1.0]}, 0, 1),
        ({"cheetah_run": [1.0], "walker_walk": [1.0]}, 0, 0),
        ({"cheetah_run": [1.0, 2.0], "walker_walk": [1.0, 2.0], "Pendulum-v1": [-9.0, -8.0]}, 0, 1),
    ],
)
def test_what_is_too_little_or_on_another_scale_has_no_profile(
    tmp_path: Path, tasks: dict[str, list[float]], num_profiles: int, num_pairs: int
) -> None:
    found = study(tmp_path, {"sac": tasks, "sac_v": tasks})
    assert (len(found.profiles), len(found.improvements)) == (num_profiles, num_pairs)
    assert (tables.IMPROVEMENT_LEGEND in tables.write_markdown(found)) == bool(num_pairs)


def test_an_unfinished_run_has_no_final_return(tmp_path: Path) -> None:
    make_run(tmp_path / "unfinished", [(10, 999.0)], length=20, seed=9)
    assert study(tmp_path, RETURNS).profiles[0].value[20] == pytest.approx(0.75)
