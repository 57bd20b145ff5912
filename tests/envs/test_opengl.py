"""The choice of the OpenGL backend, and Mesa and Triton in one process."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


DRAW_THEN_COMPILE = """
from envs import opengl
assert opengl.can_render()
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
