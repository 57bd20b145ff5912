"""`evaluate.py --view`: its keys, its display, and the windows themselves under Xvfb."""

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import glfw
import numpy as np
import probes
import pytest
from runs import ONE_THREAD, ROOT, RUN

import evaluate
from run.evaluation import window
from run.saving import run_policy

SCREEN = (900, 640)  # MuJoCo's viewer takes two thirds of it


class Script:
    """A window whose keys are pressed, and which closes, at given calls of `pressed`."""

    def __init__(self, keys: dict[int, str] | None = None, closed_at: int | None = None):
        self.keys, self.closed_at = keys or {}, closed_at
        self.begun, self.looks = 0, 0
        self.captions: list[dict[str, str]] = []

    def is_open(self) -> bool:
        return self.closed_at is None or self.looks < self.closed_at

    def begin(self) -> None:
        self.begun += 1

    def draw(self, caption: dict[str, str]) -> None:
        self.captions.append(caption)

    def pressed(self) -> list[str]:
        self.looks += 1
        return [self.keys[self.looks]] if self.looks in self.keys else []

    def close(self) -> None:
        pass


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40")
    monkeypatch.setattr(window.time, "sleep", lambda seconds: None)
    return tmp_path


def watched(folder: Path, script: Script, num_episodes: int | None) -> list[window.WatchedEpisode]:
    policy = run_policy.load(folder, "cpu")
    env = policy.make_env(False)
    episodes = list(window.watch(policy, env, script, policy.cfg.seed, num_episodes, sample=False))
    env.close()
    return episodes


def test_what_is_shown_is_what_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes.train(tmp_path, "env=Pendulum-v1", *RUN, "num_train_steps=40")  # its episodes differ
    monkeypatch.setattr(window.time, "sleep", lambda seconds: None)
    shown = watched(tmp_path, Script(), 2)
    assert shown[0].value == evaluate.evaluate(tmp_path, num_episodes=1, device="cpu")[0]
    assert [episode.number for episode in shown] == [1, 2] and all(episode.complete for episode in shown)


def test_a_pause_changes_nothing_but_the_time(trained: Path) -> None:
    script = Script({3: window.PAUSE, 9: window.PAUSE})
    assert watched(trained, script, 1) == watched(trained, Script(), 1)
    steps = [caption["step"] for caption in script.captions]
    assert steps.count("2") == 7 and all(steps.count(step) == 1 for step in set(steps) - {"2"})
    assert [index for index, caption in enumerate(script.captions) if "paused" in caption] == [3, 4, 5, 6, 7, 8]


def test_the_next_episode_begins_by_a_key_also_in_a_pause(trained: Path) -> None:
    script = Script({4: window.RESET, 6: window.PAUSE, 8: window.RESET})
    first, second, third = watched(trained, script, 3)
    assert (first.length, first.complete, second.length, second.complete) == (3, False, 1, False)
    assert third == watched(trained, Script(), 3)[2] and script.begun == 3


def test_a_closed_window_ends_it(trained: Path) -> None:
    (only,) = watched(trained, Script(closed_at=3), None)
    assert (only.length, only.complete) == (3, False)


def test_steps_are_shown_at_real_speed(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(window.time, "sleep", sleep)
    monkeypatch.setattr(window.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(window, "seconds_per_step", lambda env, action_repeat: 0.05 * action_repeat)
    (episode,) = watched(trained, Script(), 1)
    assert sum(slept) == pytest.approx(0.05 * episode.length)


@pytest.mark.parametrize(("display", "reason"), [("", "there is no display here"), (":4321", "the display :4321 can")])
def test_no_display_is_one_line(display: str, reason: str) -> None:
    env = {key: value for key, value in ONE_THREAD.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    if display:
        env["DISPLAY"] = display
    command = [sys.executable, "evaluate.py", "policies/cartpole_swingup.pt", "--view"]
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.startswith(f"evaluate.py: --view: {reason}") and ended.stderr.count("\n") == 1


def test_a_display_without_opengl_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glfw, "init", lambda: True)
    monkeypatch.setattr(glfw, "window_hint", lambda *_: None)
    monkeypatch.setattr(glfw, "create_window", lambda *_: None)
    with pytest.raises(window.UserError, match="this display has no OpenGL"):
        window.MujocoWindow(None, None, 0)


@pytest.mark.parametrize("name", ["video", "dataset"])
def test_a_window_records_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["evaluate.py", "policies/cheetah_run.pt", "--view", f"--{name}", "new-v0"])
    assert evaluate.main() == 2
    assert f"--view with --{name}: " in capsys.readouterr().err


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """An Xvfb display and the file with its pixels. Without Xvfb or xdotool, tests are skipped, but in CI they fail."""
    if not (shutil.which("Xvfb") and shutil.which("xdotool")):
        assert not os.environ.get("CI"), "no Xvfb or xdotool in CI: .ci/run has to install them"
        pytest.skip("no Xvfb here: apt install xvfb xdotool libglx-mesa0")
    folder = tmp_path_factory.mktemp("screen")
    reads, writes = os.pipe()
    options = ["-displayfd", str(writes), "-fbdir", str(folder), "-screen", "0", f"{SCREEN[0]}x{SCREEN[1]}x24"]
    server = subprocess.Popen(["Xvfb", *options], pass_fds=[writes], stderr=subprocess.DEVNULL)
    os.close(writes)
    with os.fdopen(reads) as number:
        display = f":{number.readline().strip()}"
    yield display, folder / "Xvfb_screen0"
    server.terminate()
    server.wait()


class Viewer:
    """`evaluate.py --view` on a display; a thread reads its output line by line."""

    def __init__(self, display: str, *arguments: str):
        self.env = ONE_THREAD | {"DISPLAY": display, "PYTHONPATH": str(ROOT)}
        for name in ("MUJOCO_GL", "SDL_VIDEODRIVER", "WAYLAND_DISPLAY"):  # set for the tests themselves
            self.env.pop(name, None)
        command = [sys.executable, "evaluate.py", *arguments, "--device", "cpu", "--view"]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(command, cwd=ROOT, env=self.env, text=True, **output)
        self.lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.put(line)

    def press(self, key: str) -> str:
        """Presses a key until a line is printed, and returns it: the first presses may come before the window."""
        script = ["search", "--sync", "--onlyvisible", "--class", ".", "windowfocus", "key", key]
        for _ in range(60):
            subprocess.run(["xdotool", *script], env=self.env, stderr=subprocess.DEVNULL, timeout=60, check=False)
            try:
                return self.lines.get(timeout=1)
            except queue.Empty:
                continue
        raise AssertionError(f"{key}: nothing was printed")

    def rest(self) -> list[str]:
        """Waits until the process exits with 0; returns the lines not read yet."""
        assert self.process.wait(100) == 0
        self._reader.join()
        return list(self.lines.queue)


@pytest.mark.parametrize("task", ["cartpole_swingup", "Pendulum-v1"])
def test_a_window_shows_the_policy_and_takes_keys(task: str, screen: tuple[str, Path], tmp_path: Path) -> None:
    display, pixels = screen
    probes.train(tmp_path, f"env={task}", *RUN, "num_train_steps=40")
    viewer = Viewer(display, str(tmp_path))
    try:
        assert viewer.lines.get(timeout=100).startswith("Space pauses")
        line = viewer.press("BackSpace")
        assert line.startswith("episode 1: return") and line.endswith("steps, not complete\n")
        values = np.frombuffer(pixels.read_bytes()[-4 * SCREEN[0] * SCREEN[1] :], np.uint8)
        assert values.reshape(-1, 4)[:, :3].std() > 10  # not black
        viewer.process.send_signal(signal.SIGINT)
        viewer.rest()
    finally:
        viewer.process.kill()


def test_a_number_of_episodes_ends_it(screen: tuple[str, Path], tmp_path: Path) -> None:
    probes.train(tmp_path, "env=cartpole_swingup", "env_kwargs.time_limit=0.4", *RUN, "num_train_steps=40")
    lines = Viewer(screen[0], str(tmp_path), "--episodes", "1").rest()
    (expected,) = evaluate.evaluate(tmp_path, num_episodes=1, device="cpu")
    assert f"episode 1: return {expected:.4f}, 40 steps\n" in lines
