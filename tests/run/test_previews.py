"""Videos of evaluations reach TensorBoard, whether this process evaluates or another."""

from pathlib import Path

import numpy as np
import probes
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


@pytest.mark.parametrize("in_background", [False, True])
def test_each_evaluation_has_its_video(opengl: None, tmp_path: Path, in_background: bool) -> None:
    run = ("env=Pendulum-v1", "env_kwargs.max_episode_steps=20", "num_train_steps=40", "eval_frequency=20")
    run += ("num_eval_episodes=1", "save_video=true")
    probes.train(tmp_path, *run, f"eval_in_background={in_background}", "log_save_tb=true")
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"images": 0})
    events.Reload()
    videos = events.Images("eval/video")
    assert [video.step for video in videos] == [20, 40]
    assert all(video.encoded_image_string[:4] == b"GIF8" and video.width <= 160 for video in videos)


def test_an_evaluator_that_knows_no_previews_still_works(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0")

    class Plain:
        returns, lengths = [1.0], [5]

    pending = type("Pending", (), {"step": 5, "episode": 1, "weights": None})()
    run.evaluations._log(Plain, 0.1, pending)  # type: ignore[arg-type]
    assert np.isfinite(run.progress.last_return)
    run.close()
