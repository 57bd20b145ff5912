"""preset=dmc_benchmark: every benchmarking task of the suite with every seed."""

from pathlib import Path

import pytest
from dm_control import suite
from lines import sweep_request

from settings import compose
from utils import UserError


def test_it_is_the_suites_list_with_five_seeds_at_full_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, argv = sweep_request(tmp_path, monkeypatch, "preset=dmc_benchmark")
    assert len(suite.BENCHMARKING) == 28
    assert sorted({run.env for run in runs}) == sorted("_".join(task) for task in suite.BENCHMARKING)
    assert sorted({run.seed for run in runs}) == [1, 2, 3, 4, 5]
    assert {(run.num_train_steps, run.agent["batch_size"]) for run in runs} == {(1_000_000, 1024)}
    (override,) = compose.parse([argv[-1]])
    assert override.key_or_group == "hydra.sweep.dir"
    assert [str(path) for path in tmp_path.glob("exp/*/*")] == [override.value()]


def test_a_part_of_it_with_another_preset_and_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("preset=[cpu,dmc_benchmark]", "env=cheetah_run,walker_walk", "seed=7,8", "hydra/launcher=basic")
    runs, argv = sweep_request(tmp_path, monkeypatch, *command, "hydra.sweep.dir=study")
    assert {(run.env, run.seed) for run in runs} == {("cheetah_run", 7), ("walker_walk", 7), ("cheetah_run", 8)}
    assert {run.num_train_steps for run in runs} == {60_000}
    assert (
        "hydra.job.config.override_dirname.exclude_keys=['preset', 'hydra/launcher', 'hydra.sweep.dir', 'resume']"
        in argv
    )


def test_what_a_preset_sweeps_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="seed=-1"):
        sweep_request(
            tmp_path, monkeypatch, "preset=dmc_benchmark", "env=reacher_easy", "hydra.sweeper.params.seed='-1,3'"
        )
    with pytest.raises(UserError, match="a sweep needs -m"):
        sweep_request(tmp_path, monkeypatch, "seed=1,2")
    assert list(tmp_path.iterdir()) == []
