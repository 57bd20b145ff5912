"""Runs from pixels: their settings, what they need, and the images they log; test_resume.py continues them."""

from pathlib import Path
from typing import Any

import composed
import numpy as np
import probes
import pytest
from agents import TINY
from runs import RUN
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from replay import frames
from run import environments
from utils import UserError

DRQ = ("agent=drq", *TINY, "frame_stack=2", "action_repeat=1")
OF_IMAGES = ("env=ProbeImages-v0", *DRQ)


def test_histograms_of_convolutions(tmp_path: Path) -> None:
    probes.train(tmp_path, *RUN, *OF_IMAGES, "log_save_tb=true", "log_frequency=50")
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"histograms": 0})
    events.Reload()
    histograms = set(events.Tags()["histograms"])
    assert {"train_critic/conv0_w", "train_critic/conv1_w_g", "train_critic/q1_fc0_w"} <= histograms


def test_without_opengl_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    with pytest.raises(UserError, match=r"^from_pixels=true: env=cartpole_swingup cannot be rendered here; OpenGL"):
        environments.make_train_envs(composed.settings("agent=drq", "env=cartpole_swingup"))
    assert environments.can_render(composed.settings("env=Pendulum-v1"))  # draws without OpenGL


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("agent=drq", "env=cartpole_swingup"), (8, True, 8000, 100_000, 84)),
        (("agent=drq", "env=walker_run"), (2, True, 2000, 100_000, 84)),
        (("agent=drq", "env=reacher_easy", "action_repeat=1"), (1, True, 1000, 100_000, 84)),
        (("agent=td3", "agent/encoder=convolutions", "env=cheetah_run"), (4, True, 4000, 100_000, 84)),
        (("preset=pixels_cpu", "agent=crossq", "env=finger_spin"), (2, True, 2000, 100_000, 64)),
        (("agent=sac", "env=cartpole_swingup"), (1, False, 5000, 1_000_000, 84)),
    ],
)
def test_an_agent_from_images_asks_for_what_drq_does(overrides: tuple[str, ...], expected: Any) -> None:
    cfg = composed.settings(*overrides)
    found = cfg.action_repeat, cfg.from_pixels, cfg.num_seed_steps, cfg.replay_buffer_capacity, cfg.image_size
    assert found == expected


def test_a_run_by_its_rendering(tmp_path: Path) -> None:
    run = probes.train(tmp_path, "env=Pendulum-v1", *DRQ, "image_size=16", "num_train_steps=60", "num_seed_steps=40",
                       "num_eval_episodes=1", "action_repeat=10", "num_envs=2")  # fmt: skip
    assert isinstance(run.replay_buffer, frames.FrameBuffer) and run.cfg.from_pixels
    assert len(run.envs.processes) == 2  # as rendering is slow
    assert run.envs.single_observation_space.shape == (6, 16, 16)
    assert np.isfinite(run.progress.last_return)
