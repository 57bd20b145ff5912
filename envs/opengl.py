"""Chooses MuJoCo's OpenGL backend once. This has to happen before dm_control is imported and reads the choice."""

import ctypes
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

NO_OPENGL = (
    "No videos: no OpenGL was found here. To get them, install a GPU driver with EGL, or Mesa "
    "(Debian, Ubuntu: apt install libegl1 libgl1)."
)
VARIABLE, DISABLED = "MUJOCO_GL", "disabled"
_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
mujoco.Renderer(model, 16, 16).render()
"""


def choose(wanted: bool) -> bool:
    """Sets MUJOCO_GL to a backend that works on this machine. Once `envs.make` is imported, it only returns the result.

    Each backend is tried in a child process, because a failing one can crash its process. If the user has set
    MUJOCO_GL, only that backend is tried.

    Args:
        wanted: whether anything will be rendered; if not, no backend is tried.

    Returns:
        Whether rendering works.
    """
    if "envs.make" in sys.modules:
        return os.environ.get(VARIABLE) != DISABLED
    if not wanted:
        os.environ[VARIABLE] = DISABLED
        return False
    chosen = os.environ.get(VARIABLE)
    if sys.platform == "darwin" and chosen is None:
        return True  # macOS has only its own OpenGL
    for backend in [chosen] if chosen else ["egl", "osmesa"]:
        environment = os.environ | {VARIABLE: backend}
        probe = subprocess.run([sys.executable, "-c", _PROBE], env=environment, capture_output=True, check=False)
        if probe.returncode == 0:
            os.environ[VARIABLE] = backend
            return True
    os.environ[VARIABLE] = DISABLED
    return False


def load_triton_before_mesa() -> None:
    """Loads Triton's library, if it is installed, so that its LLVM is in the process before Mesa's.

    torch's CUDA build installs Triton, which `torch.compile` and some optimizers import. If Mesa has rendered before,
    loading Triton is a segmentation fault, even on a machine without a GPU; the other order works. Loading only the
    library takes 20 ms, importing the whole package ten times as long.
    """
    if os.environ.get(VARIABLE) == DISABLED or "dm_control" in sys.modules:
        return
    package = find_spec("triton")
    for folder in (package and package.submodule_search_locations) or []:
        for library in sorted((Path(folder) / "_C").glob("libtriton*.so")):
            ctypes.CDLL(str(library))
