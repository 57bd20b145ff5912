"""Chooses MuJoCo's OpenGL backend in the variable MUJOCO_GL, which dm_control reads when it is imported."""

import ctypes
import os
import sys
from importlib.util import find_spec
from pathlib import Path

INSTALL = "OpenGL needs a GPU driver with EGL, or Mesa (Debian, Ubuntu: apt install libegl1 libgl1)"
NO_VIDEOS = f"No videos: {INSTALL}; simulators of many worlds are never filmed."
VARIABLE, DISABLED = "MUJOCO_GL", "disabled"
EGL_PLATFORM_DEVICE = 0x313F  # EGL_PLATFORM_DEVICE_EXT of eglext.h
MAX_DEVICES = 16


def choose() -> None:
    """Sets MUJOCO_GL to EGL or OSMesa if the machine has it, unless it is set; a few hundredths of a second."""
    if os.environ.get(VARIABLE) == DISABLED or sys.platform == "darwin":  # macOS has only its own OpenGL
        return
    _load_triton_before_mesa()
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = "egl" if _has_egl() else "osmesa" if _load("libOSMesa.so.8") else DISABLED


def can_render() -> bool:
    return os.environ.get(VARIABLE) != DISABLED


def _has_egl() -> bool:
    """Returns whether EGL can be initialized on a device; without one, dm_control could not be imported with it."""
    egl = _load("libEGL.so.1")
    if egl is None:
        return False
    pointer, count, devices = ctypes.c_void_p, ctypes.c_int(), (ctypes.c_void_p * MAX_DEVICES)()
    egl.eglGetProcAddress.restype = egl.eglGetDisplay.restype = pointer
    egl.eglInitialize.argtypes = [pointer, pointer, pointer]
    query, display_of = (egl.eglGetProcAddress(name) for name in (b"eglQueryDevicesEXT", b"eglGetPlatformDisplayEXT"))
    if not (query and display_of):
        return False
    ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, pointer, pointer)(query)(MAX_DEVICES, devices, ctypes.byref(count))
    get_display = ctypes.CFUNCTYPE(pointer, ctypes.c_uint, pointer, pointer)(display_of)
    displays = [get_display(EGL_PLATFORM_DEVICE, device, None) for device in devices[: count.value]]
    return any(display and egl.eglInitialize(display, None, None) for display in displays)


def _load(library: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None


def _load_triton_before_mesa() -> None:
    """Loads Triton's library, if it is installed, so that its LLVM is in the process before Mesa's.

    torch's CUDA build installs Triton, which `torch.compile` and some optimizers import. If Mesa has rendered before,
    loading Triton is a segmentation fault, even on a machine without a GPU; the other order works. Loading only the
    library takes 20 ms, importing the whole package ten times as long.
    """
    if "dm_control" in sys.modules:
        return
    package = find_spec("triton")
    for folder in (package and package.submodule_search_locations) or []:
        for library in sorted((Path(folder) / "_C").glob("libtriton*.so")):
            ctypes.CDLL(str(library))
