"""A user's environment that breaks, cannot be filmed, or is not learned from."""

from pathlib import Path

import probes
import pytest
import resizing  # noqa: F401  registers its environments
from runs import RUN, go_on

from run.folder import read_finished


@pytest.mark.parametrize(
    ("env", "error", "step"), [("ProbeFaulty-v0", ValueError, 42), ("ProbeFaultyReset-v0", KeyError, 40)]
)
def test_what_breaks_in_an_environment_keeps_its_error_with_a_note(
    env: str, error: type[Exception], step: int, tmp_path: Path
) -> None:
    run = probes.workspace(tmp_path, f"env={env}", *RUN)
    with pytest.raises(error) as caught:
        run.run()
    run.close()
    (note,) = caught.value.__notes__
    assert note.startswith(f"stopped at step {step}; the newest checkpoint is ") and note.endswith("step_30")


def test_one_that_does_not_render_trains_without_videos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path, "env=ProbeNoLimit-v0", *RUN, "num_train_steps=80", "save_video=true", "num_eval_episodes=1")
    said = capsys.readouterr().out
    assert "as it cannot be filmed (NotImplementedError" in said
    assert not list(tmp_path.glob("video/*")) and (tmp_path / "finished.json").exists()


def test_one_whose_frames_change_their_size_trains_and_resumes_without_videos(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = (*RUN, "num_train_steps=80", "save_video=true", "num_eval_episodes=1")
    probes.train(tmp_path, "env=ProbeResizing-v0", *short)
    go_on(tmp_path, "num_train_steps=160")
    said = capsys.readouterr().out
    assert said.count("as it cannot be filmed (ValueError") >= 2
    assert not list(tmp_path.glob("video/*")) and read_finished(tmp_path)["step"] == 160  # type: ignore[index]


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
