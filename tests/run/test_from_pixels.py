"""Runs from pixels: their settings, what they need, the images they log, and how they are continued."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import composed
import numpy as np
import probes
import pytest
from agents import TINY
from runs import RUN, assert_same, go_on, rows, run_until
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from envs import opengl
from replay import frames
from run import environments
from run.checkpoint import read_newest

DRQ = ("agent=drq", *TINY, "frame_stack=2", "action_repeat=1")
OF_IMAGES = ("env=ProbeImages-v0", *DRQ)


@pytest.mark.parametrize(
    "also",
    [
        ("replay_buffer_capacity=60", "log_save_tb=true", "log_frequency=50", "replay_storage=device"),
        # These environments get processes of their own.
        pytest.param(("n_step=3", "num_envs=2", "env=probes:ProbeImages-v0"), marks=pytest.mark.thorough),
    ],
)
def test_killed_it_ends_in_the_same_bytes(tmp_path: Path, also: tuple[str, ...]) -> None:
    run = (*RUN, *OF_IMAGES, *also)
    straight = probes.train(tmp_path / "straight", *run)
    assert isinstance(straight.replay_buffer, frames.FrameBuffer) and straight.agent.num_updates > 100
    run_until(tmp_path / "killed", 101, *run)
    written = sorted(path.suffix for path in (tmp_path / "killed/checkpoints/buffer").iterdir())
    assert set(written) == {".frames", ".rows"}
    go_on(tmp_path / "killed")
    assert_same(tmp_path / "killed", tmp_path / "straight")


def test_a_damaged_file_of_frames_means_the_checkpoint_before(tmp_path: Path) -> None:
    run = (*RUN, *OF_IMAGES)
    straight = probes.train(tmp_path / "straight", *run)
    run_until(tmp_path / "killed", 101, *run)
    newest = max((tmp_path / "killed/checkpoints/buffer").glob("*.frames"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    assert read_newest(tmp_path / "killed", identity={}, with_rows=True).step == 60
    assert go_on(tmp_path / "killed").step == straight.step
    assert (
        rows(tmp_path / "killed/train.csv")[-1]["critic_loss"]
        == rows(tmp_path / "straight/train.csv")[-1]["critic_loss"]
    )


def test_a_strip_shows_what_the_networks_see(tmp_path: Path) -> None:
    probes.train(tmp_path, *RUN, *OF_IMAGES, "log_save_tb=true", "log_frequency=50")
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"images": 0, "histograms": 0})
    events.Reload()
    shown = events.Images("train/images")
    assert len(shown) >= 2 and (shown[0].width, shown[0].height) == (2 * 2 * 10, 4 * 8)  # 2 views of 2 frames; 4 rows
    assert {"train_critic/conv0_w", "train_critic/conv1_w_g", "train_critic/q1_fc0_w"} <= set(
        events.Tags()["histograms"]
    )


def test_without_opengl_it_is_one_line_before_anything_is_made(
    command: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opengl, "choose", lambda wanted: False)
    assert command("agent=drq", "env=cartpole_swingup") == 2
    said = capsys.readouterr().err
    assert "from_pixels=true: env=cartpole_swingup is rendered with OpenGL, and none was found here" in said
    assert said.count("\n") == 1 and list(tmp_path.iterdir()) == []


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


def test_the_preset_for_two_cores_makes_more_updates_where_a_decision_takes_more_steps() -> None:
    for task, action_repeat, updates in (("cartpole_swingup", 8, 2), ("reacher_easy", 4, 2), ("finger_spin", 2, 1)):
        cfg = composed.settings("preset=pixels_cpu", f"env={task}")
        assert (cfg.action_repeat, cfg.updates_per_step) == (action_repeat, updates)


def test_only_a_renderer_that_any_thread_may_use_steps_beside_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    def may(*overrides: str) -> bool:
        return environments.may_step_elsewhere(composed.settings(*overrides))

    for backend, expected in (("egl", False), ("osmesa", True)):
        monkeypatch.setenv("MUJOCO_GL", backend)
        assert may("agent=drq", "env=cartpole_swingup") is expected
        assert not may("agent=drq", "env=HalfCheetah-v5")
        assert may("env=cartpole_swingup") and may("agent=drq", "env=cartpole_swingup", "num_envs=2")


def test_several_environments_that_are_rendered_get_processes() -> None:
    several = composed.settings("agent=drq", "env=Pendulum-v1", "num_envs=2")
    assert environments.in_processes(several)
    assert not environments.in_processes(composed.settings("agent=drq", "env=Pendulum-v1"))
    assert not environments.in_processes(composed.settings("num_envs=2"))


def test_a_run_by_its_rendering(tmp_path: Path) -> None:
    run = probes.train(tmp_path, "env=Pendulum-v1", *DRQ, "image_size=16", "num_train_steps=60", "num_seed_steps=40",
                       "num_eval_episodes=1", "action_repeat=10", "num_envs=2")  # fmt: skip
    assert run.cfg.from_pixels and run.envs.single_observation_space.shape == (6, 16, 16)
    assert np.isfinite(run.progress.last_return)
