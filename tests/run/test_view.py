"""`evaluate.py --view` shows the episodes that are evaluated, in MuJoCo's viewer or in the environment's window."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import glfw
import probes
import pytest
from runs import ONE_THREAD, ROOT, RUN

import evaluate
from run.evaluation import view

SHORT = (*RUN, "num_train_steps=40", "agent.actor.hidden_dim=8", "agent.critic.hidden_dim=8")


class Viewer:
    """Stands for MuJoCo's viewer; it is closed at a number of frames."""

    def __init__(self, closed_at: float = float("inf")):
        self.cam, self.frames, self.closed_at = SimpleNamespace(), 0, closed_at

    def is_running(self) -> bool:
        return self.frames < self.closed_at

    def sync(self) -> None:
        self.frames += 1

    def close(self) -> None: ...


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pretends that windows can be opened; returns what is slept."""
    slept: list[float] = []
    monkeypatch.setattr(glfw, "init", lambda: True)
    monkeypatch.setattr(view, "time", SimpleNamespace(sleep=slept.append, perf_counter=lambda: 0.0))
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    return slept


@pytest.mark.parametrize(
    "env",
    [("env=cartpole_swingup", "+env_kwargs.time_limit=0.2"), ("env=Pendulum-v1", "+env_kwargs.max_episode_steps=20")],
)
def test_what_is_shown_is_what_is_evaluated(
    env: tuple[str, ...], tmp_path: Path, display: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    probes.train(tmp_path, *env, *SHORT)
    shown = Viewer()
    monkeypatch.setattr(view.viewer, "launch_passive", lambda *_, **__: shown)
    assert evaluate.evaluate(tmp_path, 2, views=True) == evaluate.evaluate(tmp_path, 2)
    assert shown.frames == (40 if "cartpole" in env[0] else 0)
    assert display == pytest.approx([0.01 if "cartpole" in env[0] else 0.05] * 40)  # real speed
    shown.closed_at = shown.frames
    if "cartpole" in env[0]:
        assert evaluate.evaluate(tmp_path, None, views=True) == []


def test_without_a_display_it_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(glfw, "init", lambda: False)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", str(ROOT / "policies/cartpole_swingup.pt"), "--view"])
    with pytest.raises(SystemExit, match=r"^2$"):
        evaluate.main()
    assert capsys.readouterr().err == (
        "evaluate.py: --view: no display can be opened here; --video out.mp4 films instead\n"
    )


@pytest.mark.thorough
def test_a_real_window_opens_and_closes(tmp_path: Path) -> None:
    if not shutil.which("Xvfb"):
        assert not os.environ.get("CI"), "no Xvfb in CI: .ci/run has to install it"
        pytest.skip("no Xvfb here: apt install xvfb libglx-mesa0")
    probes.train(tmp_path, "env=cartpole_swingup", "+env_kwargs.time_limit=0.4", *SHORT)
    reads, writes = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(writes)], pass_fds=[writes], stderr=subprocess.DEVNULL)
    os.close(writes)
    with os.fdopen(reads) as number:
        env: dict[str, Any] = ONE_THREAD | {"DISPLAY": f":{number.readline().strip()}"}
    command = [sys.executable, "evaluate.py", str(tmp_path), "--device", "cpu", "--view", "--episodes", "1"]
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=200, check=False)
    server.terminate()
    server.wait()
    (expected,) = evaluate.evaluate(tmp_path, 1, device="cpu")
    assert ended.returncode == 0 and f"episode 1: return {expected:.4f}, 40 steps\n" in ended.stdout, ended.stderr
