"""evaluate.py, for runs and for policy files."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
from runs import RUN, rows

import evaluate

SHORT = ("env=Pendulum-v1", "+env_kwargs.max_episode_steps=20", *RUN, "num_train_steps=120", "num_eval_episodes=3")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, which tests only read."""
    return probes.train(tmp_path_factory.mktemp("trained"), *SHORT, "keep_checkpoints=9").work_dir


def command(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> Any:
    """Returns how the command ends: None, or its exit code."""
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *map(str, arguments)])
    try:
        return evaluate.main()
    except SystemExit as ended:
        return ended.code


def test_evaluate_plays_trainings_own_last_episodes(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    returns = evaluate.evaluate(trained, device="cpu")
    last = rows(trained / "eval.csv")[-1]
    assert float(last["episode_reward"]) == np.mean(returns) and float(last["episode_reward_min"]) == min(returns)
    printed = capsys.readouterr().out
    assert printed.startswith("episode 1: return -") and printed.count("\n") == 4
    sampled = [evaluate.evaluate(trained, device="cpu", sample=True) for _ in range(2)]
    assert sampled[0] == sampled[1] and not set(sampled[0]) & set(returns)
    older = evaluate.evaluate(trained / "checkpoints/step_90", num_episodes=2, seed=5, device="cpu")
    assert len(older) == 2 and not set(older) & set(returns)


def test_the_best_policy_plays_its_episodes_again(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best = max(rows(trained / "eval.csv"), key=lambda row: float(row["episode_reward"]))
    assert command(monkeypatch, trained, "--best", "--no-video") is None
    printed, value = capsys.readouterr().out, float(best["episode_reward"])
    assert f"The best evaluation was that of step {best['step']}: {value:.4f}" in printed
    assert f"checkpoints/best: mean {value:.4f}" in printed


def test_it_films_an_episode(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    film = tmp_path / "film.mp4"
    assert command(monkeypatch, trained, "--episodes", 1, "--device", "cpu", "--video", film) is None
    assert film.stat().st_size > 1000 and f"{film}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--episodes", "many"], "argument --episodes: invalid int value: 'many'"),
        (["--device", "tpu"], "device=tpu: no such device"),
        ([], "no run's folder (config.yaml:"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: list[Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = command(monkeypatch, tmp_path, *arguments)
    printed = capsys.readouterr().err
    assert code == 2 and message in printed and printed.count("\n") == 1 and not list(tmp_path.iterdir())
