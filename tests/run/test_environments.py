"""A user's environment that breaks: one line with the last checkpoint, followed by the environment's own traceback."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import composed
import probes
import pytest
import resizing  # noqa: F401  registers its environments
from runs import RUN, SILENT, go_on

from run import build
from run.saving import folder as run_folder
from utils import EnvError, RunError


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("ProbeFaulty-v0", r"its step raised ValueError: lost its way; stopped at step 42"),
        ("ProbeFaultyReset-v0", r"its reset raised KeyError: 'no way back'; stopped at step 40"),
        (
            "ProbeFaultyShape-v0",
            r"observation of shape \(4,\) where .* made flat, has \(1,\); stopped at step 42",
        ),
    ],
)
def test_what_breaks_in_an_environment_is_one_line(env: str, message: str, tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, f"env={env}", *RUN)
    with pytest.raises(EnvError, match=rf"^env={env}: .*{message}.*; the last good checkpoint is .*step_30$") as caught:
        run.run()
    run.close()
    assert "\n" not in str(caught.value)


def test_the_command_prints_its_traceback_behind_the_line(
    command: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command("env=ProbeFaulty-v0", *probes.SMALL, *RUN, "hydra.run.dir=run", *SILENT) == 3
    first, *rest = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("Error executing job")]
    assert first.startswith("train.py: env=ProbeFaulty-v0: its step raised ValueError: lost its way; stopped at step")
    assert rest[0].startswith("Traceback") and "probes.py" in "".join(rest)
    assert rest[-2:] == ["ValueError: lost", "its way"]


@pytest.mark.parametrize(
    ("env", "message", "raised"),
    [
        ("ProbeFaulty-v0", "its step raised ValueError: lost its way; stopped at step 84; .*step_60", "lost\nits way"),
        pytest.param(
            "ProbeFaultyReset-v0",
            "its reset raised KeyError: 'no way back'; stopped at step 80; .*step_60",
            "no way back",
            marks=pytest.mark.thorough,
        ),
        ("ProbeFaultyShape-v0", r"observation of shape \(4,\) where .*; stopped at step 84; .*step_60", ""),
    ],
)
def test_what_breaks_in_an_environments_own_process_is_one_line_too(
    env: str, message: str, raised: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = probes.workspace(tmp_path, f"env=probes:{env}", *RUN, "async_envs=true", "num_envs=2")
    with pytest.raises(EnvError, match=rf"^env=probes:{env}: .*{message}") as caught:
        run.run()
    run.close()
    trace = caught.value.trace
    assert bool(trace) == bool(raised) and raised in trace
    assert not trace or (trace.startswith("Traceback") and "probes.py" in trace and "EnvError" not in trace)
    assert "lost" not in capfd.readouterr().err, "that is for the command to print, behind its line"


@pytest.mark.parametrize(
    ("env", "message", "raised"),
    [
        ("UnbuildableApart", "env=probes:ProbeUnbuildableApart-v0: it cannot be built .*no room here", "no room\nhere"),
        ("StuckApart", "an environment's process has not answered for env_timeout_s=1$", ""),
    ],
)
def test_one_that_cannot_be_built_in_its_process(env: str, message: str, raised: str, tmp_path: Path) -> None:
    overrides = (
        f"env=probes:Probe{env}-v0",
        *RUN,
        "async_envs=true",
        "env_timeout_s=1" if not raised else "num_envs=2",
    )
    before = set(multiprocessing.active_children())
    with pytest.raises(RunError, match=message) as caught:
        probes.workspace(tmp_path, *overrides)
    assert not raised or (isinstance(caught.value, EnvError) and raised in caught.value.trace)
    assert set(multiprocessing.active_children()) <= before


def test_their_processes_end_if_the_parts_of_a_run_cannot_be_put_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(build, "identity_of", fail)
    before = set(multiprocessing.active_children())
    with pytest.raises(ZeroDivisionError) as caught:
        build.build(composed.settings(*probes.SMALL, "env=probes:ProbeTimeLimit-v0", "async_envs=true"))
    assert set(multiprocessing.active_children()) <= before
    assert caught.tb  # its frames keep the environments alive, so they do not end by themselves


def test_a_fault_of_close_does_not_hide_how_the_run_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise EnvError("env=mine: its close raised RuntimeError: not connected")

    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=60")
    run.run()
    run.envs.close = fail  # type: ignore[method-assign]
    run.close()
    assert capsys.readouterr().err.endswith("env=mine: its close raised RuntimeError: not connected\n")
    assert go_on(tmp_path, "num_train_steps=90").step == 90  # the folder's lock was released


def test_one_that_does_not_render_trains_without_videos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path, "env=ProbeNoLimit-v0", *RUN, "num_train_steps=80", "save_video=true", "num_eval_episodes=1")
    said = capsys.readouterr().out
    assert said.count("No videos: this environment cannot be filmed (NotImplementedError") == 1
    assert not list(tmp_path.glob("video/*")) and (tmp_path / "finished.json").exists()


def test_one_whose_frames_change_their_size_trains_and_resumes_without_videos(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = (*RUN, "num_train_steps=80", "save_video=true", "num_eval_episodes=1")
    probes.train(tmp_path, "env=ProbeResizing-v0", *short)
    go_on(tmp_path, "num_train_steps=160")
    said = capsys.readouterr().out
    assert said.count("No videos: this environment cannot be filmed (ValueError: a frame of shape (32, 32, 3)") == 2
    assert not list(tmp_path.glob("video/*")) and run_folder.finished(tmp_path) == (160, 5.0)


def test_one_whose_images_change_their_size_is_one_line(tmp_path: Path) -> None:
    run = probes.workspace(
        tmp_path, "env=ProbeResizingImages-v0", *RUN, "agent=drq", "action_repeat=1", "num_seed_steps=160"
    )
    with pytest.raises(EnvError, match=r"its step raised ValueError: .*; stopped at step 42; .*step_30$"):
        run.run()
    run.close()
    with pytest.raises(EnvError, match=r"its step raised ValueError: .*; stopped at step 70; .*step_60$"):
        go_on(tmp_path)  # makes a new environment, which counts its steps anew


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("min_buffer_size=500",), "500 transitions (min_buffer_size=500) are waited for"),
        (("num_seed_steps=160",), "num_seed_steps=160"),
        (("update_every=200",), "update_every=200"),
        (("min_buffer_size=150",), None),
        (("action_repeat=2", "min_buffer_size=79"), None),
    ],
)
def test_a_run_that_will_not_learn_says_so(
    overrides: tuple[str, ...], why: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN, *overrides)
    said = capsys.readouterr().out
    updates = []
    run.agent.update = lambda *_: updates.append(1)  # type: ignore[method-assign]
    run.run()
    run.close()
    expected = f"No update is to be expected within 160 steps: {why}" if why else "No update"
    assert (expected in said) == (why is not None)
    assert bool(updates) == (why is None)
