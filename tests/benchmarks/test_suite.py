"""benchmarks/suite.py reads finished runs, and averages over tasks and seeds."""

from pathlib import Path

import pytest
import suite
from made_runs import make_run


def test_finished_runs_become_means_with_an_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "RESULTS", tmp_path)
    for task, seed, last in (("a", 1, 10.0), ("a", 2, 30.0), ("b", 1, 50.0), ("b", 2, 150.0)):
        make_run(tmp_path / f"{task}{seed}", [(50_000, 1.0), (suite.STEPS, last)], env=task, seed=seed)
    make_run(tmp_path / "stopped", [(50_000, 1.0)], env="a", seed=3, length=suite.STEPS)
    suite.record_runs([str(tmp_path)])
    returns = suite.read_returns()
    assert returns["a"] == {1: {50_000: 1.0, suite.STEPS: 10.0}, 2: {50_000: 1.0, suite.STEPS: 30.0}}
    half, mean, low, high, _ = suite.average_ours(["a", "b"], returns)
    assert (half, mean, low, high) == ("1", "60", "30", "90")  # of four runs, the lowest of each task to the highest
    published = {name: {"a": {suite.STEPS: 100.0}, "b": {suite.STEPS: 100.0}} for name in suite.PLAIN}
    assert suite.find_below_plain_sac(returns, published) == ["a (20 ± 14; 100)"]  # b: by less than its spread
    assert suite.average_published(["a", "b"], published[suite.PLAIN[0]])[1] == "100"
