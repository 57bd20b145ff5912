"""Chooses MuJoCo's OpenGL backend in the variable MUJOCO_GL, which dm_control reads when it is imported."""

import ctypes
import os
import sys
from importlib.util import find_spec
from pathlib import Path

INSTALL = "OpenGL needs a GPU driver with EGL, or Mesa (Debian, Ubuntu: apt install libegl1 libgl1)"
NO_VIDEOS = f"No videos: {INSTALL}; simulators of many worlds are never filmed."
VARIABLE, DISABLED = "MUJOCO_GL", "disabled"
EGL_PLATFORM_DEVICE, MAX_DEVICES = 0x313F, 16  # the first is EGL_PLATFORM_DEVICE_EXT of eglext.h


def choose() -> None:
    """Sets MUJOCO_GL, unless it is set, to EGL if the machine has it; takes a few hundredths of a second."""
    if os.environ.get(VARIABLE) == DISABLED or sys.platform == "darwin":  # macOS has only its own OpenGL
        return
    _load_triton_before_mesa()
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = "egl" if _has_egl() else DISABLED


def can_render() -> bool:
    return os.environ.get(VARIABLE) != DISABLED


def _has_egl() -> bool:
    """Returns whether EGL can be initialized on a device; without one, dm_control could not be imported with it."""
    try:
        ctypes.CDLL("libGL.so.1")  # for PyOpenGL, with which dm_control calls EGL
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    pointer, count, devices = ctypes.c_void_p, ctypes.c_int(), (ctypes.c_void_p * MAX_DEVICES)()
    egl.eglGetProcAddress.restype, egl.eglInitialize.argtypes = pointer, [pointer] * 3
    query, display_of = (egl.eglGetProcAddress(name) for name in (b"eglQueryDevicesEXT", b"eglGetPlatformDisplayEXT"))
    if not (query and display_of):
        return False
    ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, pointer, pointer)(query)(MAX_DEVICES, devices, ctypes.byref(count))
    get_display = ctypes.CFUNCTYPE(pointer, ctypes.c_uint, pointer, pointer)(display_of)
    displays = (get_display(EGL_PLATFORM_DEVICE, device, None) for device in devices[: count.value])
    return any(display and egl.eglInitialize(display, None, None) for display in displays)


def _load_triton_before_mesa() -> None:
    """Loads Triton's library, if it is installed, so that its LLVM is in the process before Mesa's.

    torch's CUDA build installs Triton, which `torch.compile` and some optimizers import. If Mesa has rendered before,
    loading Triton is a segmentation fault; the other order works. Importing all of Triton would take ten times as long.
    """
    package = find_spec("triton") if "dm_control" not in sys.modules else None
    for folder in (package and package.submodule_search_locations) or []:
        for library in sorted((Path(folder) / "_C").glob("libtriton*.so")):
            ctypes.CDLL(str(library))
