"""Videos of evaluations reach TensorBoard, whether this process evaluates or another; a failed film is one line."""

from pathlib import Path

import probes
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

RUN = ("num_train_steps=40", "eval_frequency=20", "num_eval_episodes=1", "save_video=true")


@pytest.mark.parametrize("in_background", [False, True])
def test_each_evaluation_has_its_video(opengl: None, tmp_path: Path, in_background: bool) -> None:
    env = ("env=Pendulum-v1", "env_kwargs.max_episode_steps=20")
    probes.train(tmp_path, *env, *RUN, f"eval_in_background={in_background}", "log_save_tb=true")
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"images": 0})
    events.Reload()
    videos = events.Images("eval/video")
    assert [video.step for video in videos] == [20, 40]
    assert all(video.encoded_image_string[:4] == b"GIF8" and video.width <= 160 for video in videos)
    assert {path.name for path in (tmp_path / "video").iterdir()} == {"20.mp4", "40.mp4"}


def test_a_failed_film_is_one_line_and_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN)  # which cannot render
    assert run.step == 40 and capsys.readouterr().out.count("cannot be filmed") == 1
