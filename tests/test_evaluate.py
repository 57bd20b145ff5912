"""evaluate.py, for runs and for policy files."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import probes
import pytest
import torch
from dm_control.rl.control import Environment, PhysicsError
from runs import RUN
from same_run import timeless

import evaluate
from agent.policy_file import load_policy
from physics.worlds import Worlds
from utils import RunError, UserError


def test_a_policy_trained_elsewhere_acts_here(tmp_path: Path) -> None:
    """The saved generator is a GPU's, whose state does not fit the CPU's."""
    trained = probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40").agent
    state = trained.state_dict()
    state["policy"]["generator"] = torch.arange(16, dtype=torch.uint8)
    drawn = []
    for _ in range(2):
        trained.load_state_dict(state)
        drawn.append(trained.act(np.zeros(1, np.float32), sample=True).item())
    assert drawn[0] == drawn[1]


def test_evaluate_plays_trainings_own_last_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path, "env=Pendulum-v1", *RUN, "num_eval_episodes=3", "num_train_steps=120")
    capsys.readouterr()
    returns = evaluate.evaluate(tmp_path, device="cpu")
    header, *_, last = timeless(tmp_path / "eval.csv")
    row = dict(zip(header, last, strict=True))
    assert float(row["episode_reward"]) == np.mean(returns)
    assert float(row["episode_reward_min"]) == min(returns)
    said = capsys.readouterr().out
    assert said.startswith("episode 1: return -") and said.count("\n") == 4

    (tmp_path / "checkpoints/buffer").rename(tmp_path / "elsewhere")  # evaluating needs no replay buffer
    older = evaluate.evaluate(tmp_path / "checkpoints/step_90", num_episodes=2, seed=5, device="cpu")
    assert len(older) == 2 and not set(older) & set(returns)


def test_the_best_policy_plays_its_episodes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probes.train(tmp_path, "env=Pendulum-v1", *RUN, "num_eval_episodes=2", "num_train_steps=120")
    header, *rows = timeless(tmp_path / "eval.csv")
    best = max((dict(zip(header, row, strict=True)) for row in rows), key=lambda row: float(row["episode_reward"]))
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(tmp_path), "--best", "--no-video"])
    assert evaluate.main() == 0
    said = capsys.readouterr().out
    assert f"The best evaluation was that of step {best['step']}: {float(best['episode_reward']):.4f}" in said
    assert f"checkpoints/best: mean {float(best['episode_reward']):.4f}" in said
    (tmp_path / "checkpoints/best/manifest.json").unlink()
    assert evaluate.main() == 2
    assert "no policy of a best evaluation" in capsys.readouterr().err


def test_evaluate_films_an_episode(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=Pendulum-v1", "env_kwargs.max_episode_steps=20", *RUN, "num_train_steps=40")
    evaluate.evaluate(tmp_path, num_episodes=1, device="cpu", film=tmp_path / "film.mp4")
    assert (tmp_path / "film.mp4").stat().st_size > 1000


def test_a_video_that_was_asked_for_and_not_made_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate, "evaluate", lambda *_: [1.0])
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(tmp_path), "--video", str(tmp_path / "film.mp4")])
    assert evaluate.main() == 3
    assert "film.mp4: it was not written" in capsys.readouterr().err
    (tmp_path / "film.mp4").touch()
    assert evaluate.main() == 0


def test_the_policy_alone(tmp_path: Path) -> None:
    agent = probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40").agent
    policy = load_policy(tmp_path / "checkpoints/step_40/policy.pt")
    obs = np.linspace(-1, 1, 5, dtype=np.float32).reshape(5, 1)
    np.testing.assert_array_equal(policy.act(obs), agent.act(obs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--seed -1", "--seed -1: 0 or more"),
        ("--episodes 0", "--episodes 0: 1 or more"),
        ("--video .", "--video .: a folder; name a file"),
        ("--video out.mp4 --no-video", "--video with --no-video: leave out one of the two"),
        ("--video out.gif", "--video out.gif: its name has to end in .mp4"),
        (f"--video {__file__}/out.mp4", f"out.mp4: {__file__} is a file, and no folder"),
        ("--device tpu", "no run in it (a run's folder has a config.yaml)"),
        ("", "no run in it (a run's folder has a config.yaml)"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(tmp_path), *arguments.split()])
    assert evaluate.main() == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_path_without_a_run_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, what in (("file", "a file"), ("nope", "no such folder"), ("nope/checkpoints/step_3", "no such folder")):
        with pytest.raises(UserError, match=rf"{what}; the folder of a run goes here, or without --best a check"):
            evaluate.evaluate(tmp_path / path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UserError, match="there is no checkpoint in it"):
        evaluate.evaluate(tmp_path)


def test_a_name_that_no_system_allows_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["evaluate.py", "a" * 300])
    assert evaluate.main() == 2
    assert capsys.readouterr().err.endswith(f"{'a' * 300}: File name too long\n")


def test_ctrl_c_ends_it_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluate, "evaluate", interrupted)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(tmp_path)])
    assert evaluate.main() == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_checkpoints_policy_is_evaluated_by_its_folder(tmp_path: Path) -> None:
    for name in ("policy.pt", "manifest.json"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=rf"No such file or directory; give the checkpoint's folder, {tmp_path}$"):
        evaluate.evaluate(tmp_path / "policy.pt")


@pytest.mark.parametrize(("physics", "where"), [("suite", (Environment, "step")), ("batched", (Worlds, "step"))])
def test_physics_that_diverge_are_one_line(
    physics: str, where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = (*RUN, "num_train_steps=40", f"physics={physics}", "env_kwargs.time_limit=0.2")
    probes.train(tmp_path, "env=cartpole_balance", *short)

    def diverge(*_: Any) -> Any:
        if physics == "suite":
            raise PhysicsError("Physics state is invalid.")
        raise RunError("env=cartpole_balance: Physics state is invalid.")

    monkeypatch.setattr(*where, diverge)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(tmp_path), "--no-video"])
    assert evaluate.main() == 3
    assert capsys.readouterr().err == "evaluate.py: env=cartpole_balance: Physics state is invalid.\n"


def test_a_run_may_be_called_as_its_parts_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path / "best/best", "env=Pendulum-v1", *RUN, "num_train_steps=60", "eval_frequency=40")
    for name in ("best", "checkpoints"):
        (tmp_path / "best").rename(tmp_path / name)
        evaluate.evaluate(tmp_path / name / "best", num_episodes=1)
        assert f"{name}/best/checkpoints/step_60: mean" in capsys.readouterr().out


def test_an_environment_that_raises_is_one_line_and_its_own_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40")

    def lost(*_: Any) -> Any:
        raise ValueError("lost its way")

    monkeypatch.setattr(probes.Endless, "step", lost)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(tmp_path), "--no-video"])
    assert evaluate.main() == 3
    line, *rest = capsys.readouterr().err.splitlines()
    assert line == "evaluate.py: env=ProbeTimeLimit-v0: its step raised ValueError: lost its way"
    assert rest[0].startswith("Traceback") and rest[-1] == "ValueError: lost its way"
