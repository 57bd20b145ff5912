"""Which OpenGL MuJoCo renders with. It is settled once, before dm_control is imported, which reads it then."""

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
    """Sets MUJOCO_GL to a backend that renders here, before `envs.make` is imported; later calls repeat the answer.

    A backend is tried in a child process, because one that fails takes its process with it. A backend the user chose
    is the only one tried.

    Args:
        wanted: whether anything will be rendered; if not, no backend is looked for.

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
        return True  # macOS has its own OpenGL, which needs no name
    for backend in [chosen] if chosen else ["egl", "osmesa"]:
        environment = os.environ | {VARIABLE: backend}
        probe = subprocess.run([sys.executable, "-c", _PROBE], env=environment, capture_output=True, check=False)
        if probe.returncode == 0:
            os.environ[VARIABLE] = backend
            return True
    os.environ[VARIABLE] = DISABLED
    return False


def load_triton_before_mesa() -> None:
    """Loads Triton's library, if there is one, so that its LLVM is in the process before Mesa's.

    torch's CUDA build brings Triton, which `torch.compile` and some optimizers import. Once Mesa has drawn, even on a
    machine without a GPU, loading Triton ends in a segmentation fault; the other way round both work. The library alone
    takes a fiftieth of a second; importing its package would take ten times that.
    """
    if os.environ.get(VARIABLE) == DISABLED or "dm_control" in sys.modules:
        return
    package = find_spec("triton")
    for folder in (package and package.submodule_search_locations) or []:
        for library in sorted((Path(folder) / "_C").glob("libtriton*.so")):
            ctypes.CDLL(str(library))
