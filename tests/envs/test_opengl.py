"""The choice of the OpenGL backend, and Mesa and Triton in one process."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from envs import opengl

ROOT = Path(__file__).parents[2]


def test_no_backend_is_looked_for_unless_wanted_and_a_dead_one_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "envs.make", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert not opengl.choose(wanted=False)
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    assert not opengl.choose(wanted=True)
    assert os.environ["MUJOCO_GL"] == "disabled"


def test_an_answer_is_repeated_once_the_environments_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "envs.make" in sys.modules
    for backend, renders in (("egl", True), ("disabled", False)):
        monkeypatch.setenv("MUJOCO_GL", backend)
        assert opengl.choose(wanted=True) == opengl.choose(wanted=False) == renders
        assert os.environ["MUJOCO_GL"] == backend


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the libraries that `load_triton_before_mesa` loads if Triton is installed in `folder`."""
    names: list[str] = []
    monkeypatch.setattr(opengl.ctypes, "CDLL", names.append)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    opengl.load_triton_before_mesa()
    return names


def test_tritons_library_is_loaded_first_and_only_where_it_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "triton" / "_C" / "libtriton.so"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "triton" / "__init__.py").write_text(
        "raise AssertionError('importing the package takes ten times as long')"
    )
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert loaded(tmp_path, monkeypatch) == []  # too late: Mesa may be there already
    monkeypatch.delitem(sys.modules, "dm_control")
    assert loaded(tmp_path, monkeypatch) == [str(library)]
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    assert loaded(tmp_path, monkeypatch) == []


DRAW_THEN_COMPILE = """
from envs import opengl
assert opengl.choose(wanted=True)
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
