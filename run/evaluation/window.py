"""Shows a policy live in a window. It runs at the environment's real speed.

MuJoCo simulations, such as the suite's tasks and Gymnasium's MuJoCo tasks, are shown in MuJoCo's own viewer. Any other
environment opens a window of its own (`render_mode=human`).
"""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import glfw
import gymnasium as gym

from envs.episodes import EVAL_STREAM, episode_seed
from run.environments import make_env_factory
from run.evaluation.evaluator import evaluating
from run.saving.run_policy import RunPolicy
from utils import UserError, one_line, require_finite
from video import seconds_per_step

KEYS = "Space pauses, Backspace starts the next episode, closing the window ends"
PAUSE, RESET = "pause", "reset"
GLFW_KEYS = {glfw.KEY_SPACE: PAUSE, glfw.KEY_BACKSPACE: RESET}
PAUSED_S = 0.02  # between two reads of the keys
CLOSING_S = 10.0  # longest wait for MuJoCo's viewer to draw its last frame


@dataclass(frozen=True)
class WatchedEpisode:
    """An episode that was shown: its number, return and environment steps; `complete` if it ended by itself."""

    number: int
    value: float
    length: int
    complete: bool


class MujocoWindow:
    """MuJoCo's viewer; its left and right panels open with Tab and Shift+Tab, its help with F1.

    Args:
        model, data: the simulation, as MuJoCo's own objects.
        camera_id: the camera of the videos.

    Raises:
        UserError: where no OpenGL window can be opened.
    """

    def __init__(self, model: Any, data: Any, camera_id: int):
        _require_opengl_window()
        from mujoco import mjtCamera, viewer  # imported late: mujoco reads MUJOCO_GL (see envs.opengl)

        self._num_terrains = model.nhfield
        self._keys: list[int] = []
        others = set(threading.enumerate())
        try:
            self._viewer = viewer.launch_passive(
                model, data, key_callback=self._keys.append, show_left_ui=False, show_right_ui=False
            )
        except RuntimeError as error:  # on macOS it needs MuJoCo's own interpreter, mjpython
            raise UserError(f"--view: MuJoCo's viewer cannot be opened ({one_line(error)})") from error
        self._threads = set(threading.enumerate()) - others
        if camera_id < model.ncam:  # the camera of the videos, which follows what moves; Esc leaves it
            with self._viewer.lock():
                self._viewer.cam.type = mjtCamera.mjCAMERA_FIXED
                self._viewer.cam.fixedcamid = camera_id

    def is_open(self) -> bool:
        """Returns whether the window is still open."""
        return bool(self._viewer.is_running())

    def begin(self) -> None:
        """Updates the terrains after a reset, which may have changed them."""
        for index in range(self._num_terrains):
            self._viewer.update_hfield(index)

    def draw(self, caption: dict[str, str]) -> None:
        """Shows the environment's state, and the caption's names and values."""
        self._viewer.set_texts((None, None, "\n".join(caption), "\n".join(caption.values())))
        self._viewer.sync()

    def pressed(self) -> list[str]:
        """Returns PAUSE and RESET for the keys pressed since the last call."""
        keys, self._keys[:] = list(self._keys), []
        if keys:  # on Backspace the viewer resets the simulation itself at its next sync: sync now, not later
            self._viewer.sync()
        return [GLFW_KEYS[key] for key in keys if key in GLFW_KEYS]

    def close(self) -> None:
        self._viewer.close()
        for thread in self._threads:  # they would crash a process that ends before them
            thread.join(CLOSING_S)


class HumanWindow:
    """The window of an environment that draws itself in each step; keys are read from pygame windows only."""

    def __init__(self) -> None:
        self._open = True
        self._pressed: list[str] = []

    def is_open(self) -> bool:
        self._read_events()
        return self._open

    def begin(self) -> None:
        """Does nothing: the environment has drawn itself."""

    def draw(self, caption: dict[str, str]) -> None:
        import pygame

        if pygame.display.get_init():
            pygame.display.set_caption(", ".join(f"{name} {value}" for name, value in caption.items()))

    def pressed(self) -> list[str]:
        self._read_events()
        pressed, self._pressed = self._pressed, []
        return pressed

    def close(self) -> None:
        """Does nothing: the environment closes its window."""

    def _read_events(self) -> None:
        import pygame  # imported late: MuJoCo's tasks do not need it

        if not pygame.display.get_init():
            return
        keys = {pygame.K_SPACE: PAUSE, pygame.K_BACKSPACE: RESET}
        for event in pygame.event.get((pygame.KEYDOWN, pygame.QUIT)):
            if event.type == pygame.QUIT:
                self._open = False
            elif event.key in keys:
                self._pressed.append(keys[event.key])


Window = MujocoWindow | HumanWindow


def require_display() -> None:
    """Raises UserError if no window can be opened."""
    glfw.ERROR_REPORTING = "ignore"  # the error below reports it
    if not glfw.init():
        name = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
        reason = f"the display {name} cannot be opened" if name else "there is no display here, DISPLAY is not set"
        raise UserError(f"--view: {reason}; `--video out.mp4` films instead")


def _require_opengl_window() -> None:
    """Tries a hidden window first, because MuJoCo's viewer ends the process if it cannot open its own."""
    require_display()
    glfw.window_hint(glfw.VISIBLE, glfw.FALSE)
    window = glfw.create_window(16, 16, "", None, None)
    if not window:
        raise UserError("--view: this display has no OpenGL; `--video out.mp4` films instead")
    glfw.destroy_window(window)
    glfw.default_window_hints()


def _simulation_of(env: gym.Env) -> tuple[Any, Any] | None:
    """Returns an environment's model and data as MuJoCo's own objects; None if MuJoCo does not simulate it."""
    base: Any = env.unwrapped
    physics = getattr(getattr(base, "_env", None), "physics", None)  # a task of dm_control
    if physics is not None:
        return physics.model.ptr, physics.data.ptr
    model, data = getattr(base, "model", None), getattr(base, "data", None)
    return (model, data) if type(model).__name__ == "MjModel" and type(data).__name__ == "MjData" else None


def open_window(policy: RunPolicy) -> tuple[gym.Env, Window]:
    """Makes an environment of a policy's run, and a window that shows it; raises UserError if none can be opened."""
    require_display()
    env = policy.make_env(False)
    simulation = _simulation_of(env)
    if simulation is None:
        env.close()
        return make_env_factory(policy.cfg, "evaluation", human=True)(True), HumanWindow()
    try:
        camera_id = getattr(env.unwrapped, "render_kwargs", {}).get("camera_id", 0)
        return env, MujocoWindow(*simulation, camera_id)
    except UserError:
        env.close()
        raise


def watch(
    policy: RunPolicy, env: gym.Env, window: Window, seed: int, num_episodes: int | None, sample: bool
) -> Iterator[WatchedEpisode]:
    """Shows episodes one after the other until the window is closed. They have the seeds of an evaluation's episodes.

    Args:
        env, window: from `open_window`.
        num_episodes: number of episodes to show; None shows them until the window is closed.

    Yields:
        Each episode, as it ends.
    """
    with evaluating(policy.actor, policy.step, seed if sample else None):
        for index in count() if num_episodes is None else range(num_episodes):
            if not window.is_open():
                return
            obs, _ = env.reset(seed=episode_seed(seed, EVAL_STREAM, policy.step, index))
            window.begin()
            yield _show_episode(policy, env, window, obs, index + 1, sample)


def _show_episode(
    policy: RunPolicy, env: gym.Env, window: Window, obs: Any, number: int, sample: bool
) -> WatchedEpisode:
    value, length, paused, complete = 0.0, 0, False, False
    step_s = seconds_per_step(env, policy.cfg.action_repeat)
    due_s = time.perf_counter()
    while window.is_open() and not complete:
        caption = {"episode": f"{number}", "step": f"{length}", "return": f"{value:.1f}"}
        window.draw(caption | {"paused": "Space goes on"} if paused else caption)
        for key in window.pressed():
            if key == RESET:
                return WatchedEpisode(number, value, length, complete=False)
            paused = not paused
        if paused:
            time.sleep(PAUSED_S)
            continue
        action = policy.actor.act(obs[None], sample=sample)[0]
        require_finite("action", action)
        obs, reward, terminated, truncated, info = env.step(action)
        value, length, complete = value + float(reward), length + info["repeats"], terminated or truncated
        due_s = max(due_s + step_s, time.perf_counter())  # a late step delays all later ones, and none is rushed
        time.sleep(due_s - time.perf_counter() if due_s > time.perf_counter() else 0.0)
    return WatchedEpisode(number, value, length, complete)
