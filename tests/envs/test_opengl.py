"""The choice of the OpenGL backend, and Mesa and Triton in one process."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from envs import opengl

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("given", "has_egl", "chosen"),
    [(None, True, "egl"), (None, False, "disabled"), ("osmesa", True, "osmesa"), ("disabled", True, "disabled")],
)
def test_a_backend_that_the_user_set_is_kept(
    monkeypatch: pytest.MonkeyPatch, given: str | None, has_egl: bool, chosen: str
) -> None:
    monkeypatch.setenv("MUJOCO_GL", given or "")
    if given is None:
        monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr(opengl, "_has_egl", lambda: has_egl)
    opengl.choose()
    assert os.environ["MUJOCO_GL"] == chosen and opengl.can_render() == (chosen != "disabled")


@pytest.mark.parametrize("missing", ["libGL.so.1", "libEGL.so.1"])
def test_without_a_library_there_is_no_egl(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    load = opengl.ctypes.CDLL
    monkeypatch.setattr(opengl.ctypes, "CDLL", lambda name: load("none" if name == missing else name))
    assert not opengl._has_egl()


def test_tritons_library_is_loaded_before_mesa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "triton/_C/libtriton.so"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "triton/__init__.py").write_text("raise AssertionError('importing the package takes too long')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    loaded: list[str] = []
    monkeypatch.setattr(opengl.ctypes, "CDLL", loaded.append)
    opengl._load_triton_before_mesa()
    assert loaded == []  # too late: dm_control is imported
    monkeypatch.delitem(sys.modules, "dm_control")
    opengl._load_triton_before_mesa()
    assert loaded == [str(library)]


DRAW_THEN_COMPILE = """
from envs.make import make_env
env = make_env("cartpole_swingup", seed=1, render=True)
env.reset(seed=1)
assert env.render().any()
import torch, torch._dynamo
import triton._C.libtriton
torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
assert env.render().any()
env.close()
"""


@pytest.mark.usefixtures("opengl")
@pytest.mark.skipif(find_spec("triton") is None, reason="torch's CPU build, which has no Triton")
def test_what_imports_triton_works_after_a_frame() -> None:
    run = subprocess.run([sys.executable, "-c", DRAW_THEN_COMPILE], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
