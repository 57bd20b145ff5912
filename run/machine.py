"""What this machine can do: its device, precision, OpenGL and memory."""

import ctypes
import os
import platform
import subprocess
import sys
import time
from typing import Any

import torch

from settings.check import Settings
from utils import UserError, num_cores

# Of (batch, width) by (width, width): target actor 1, target critics 2, critics 2 forward and 4 backward, then for the
# actor 1 forward and 2 backward through itself, 2 and 2 through the critics.
PRODUCTS_PER_UPDATE = 16
PARENT = "ENDS_WITH_PROCESS"  # set by a pool, which has a run on each core, to the process that a run ends with
STEPS_WORTH_A_PROCESS = 10_000


def note_if_slow(cfg: Settings, device: torch.device) -> None:
    """Says what to expect where a CPU is given a GPU's work, from the rate of the products that dominate an update."""
    batch_size, width = cfg.agent.get("batch_size", 0), cfg.agent.get("critic", {}).get("hidden_dim", 0)
    if device.type != "cpu" or batch_size * width**2 < 2**27:
        return
    if cfg.agent.get("encoder"):
        print("This agent is made for a GPU: expect seconds for each decision. preset=pixels_cpu is made for a CPU.")
        return
    x, weight = torch.zeros(batch_size, width), torch.zeros(width, width)
    torch.mm(x, weight)
    started_s = time.perf_counter()
    torch.mm(x, weight)
    steps_per_second = 1 / ((time.perf_counter() - started_s) * PRODUCTS_PER_UPDATE * cfg.updates_per_step)
    print(
        f"This agent is made for a GPU: expect about {steps_per_second:.1f} steps per second on this CPU. "
        "preset=fast learns in minutes."
    )


def resolve_device(name: str) -> torch.device:
    """Turns a configured device into one that exists; `auto` is cuda where there is one, else cpu.

    Raises:
        UserError: for a name torch does not know, or a device this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device={name}: no such device; choose auto, cpu, cuda or cuda:<index>") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise UserError(f"device={name}: {found} NVIDIA GPU(s) found here; choose auto or cpu") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device={name}: only cpu and cuda are supported; choose auto, cpu, cuda or cuda:<index>")
    return device


def set_precision(precision: str, device: torch.device) -> str:
    """Chooses what products of float32 matrices are made in; `auto` is tf32 on a GPU that has it, fp32 elsewhere.

    Of bf16 the agent's part is its `autocast_dtype`; everything else stays in fp32.

    Returns:
        What was chosen: fp32, tf32 or bf16.

    Raises:
        UserError: for tf32 on a device without it, and for bf16 on a CPU that has to emulate it.
    """
    if precision == "bf16" and device.type == "cpu" and not has_bf16():
        raise UserError(
            "precision=bf16: this processor has no instructions for it (AVX512_BF16 or AMX), so an update would take "
            "about 3.5 times as long as in fp32; choose auto or fp32"
        )
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if precision == "tf32" and not has_tf32:
        raise UserError(f"precision=tf32: {device} has no such products; choose auto, fp32 or bf16")
    chosen = ("tf32" if has_tf32 else "fp32") if precision == "auto" else precision
    torch.set_float32_matmul_precision("high" if chosen == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = chosen == "tf32"  # of convolutions
    torch.backends.cudnn.deterministic = True  # so that a replayed update can be held against an eager one
    return chosen


def has_bf16() -> bool:
    """Whether this CPU has instructions for products in bfloat16; of another kind than x86 that is not known."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return not is_x86 or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def has_time_beside(cfg: Settings, device: torch.device) -> bool:
    """Whether a process beside a run would find a core that the run leaves free, for longer than it takes to start."""
    return has_free_core(device) and cfg.num_train_steps >= STEPS_WORTH_A_PROCESS


def has_free_core(device: torch.device) -> bool:
    """Whether updates leave a core alone. Threads of an update wait for each other, so a lost core stops them all."""
    if device.type == "cuda":
        return True
    return PARENT not in os.environ and num_cores() > torch.get_num_threads()


def keep_freed_memory() -> None:
    """Asks glibc to keep freed memory for the next allocation instead of handing it back to the kernel.

    An update at 1024 units frees and takes 50 MB; given back, each page of it faults again (5 % of the update's time).
    Where the C library is another one, nothing happens.
    """
    if platform.libc_ver()[0] == "glibc":
        trim_threshold, mmap_threshold = -1, -3  # malloc.h's names for them
        libc = ctypes.CDLL(None)
        libc.mallopt(trim_threshold, 2**30)
        libc.mallopt(mmap_threshold, 2**25)  # the most it accepts


NO_OPENGL = "No videos: no OpenGL was found here. Install libosmesa6 (apt), or a GPU driver with EGL, to get them."
_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
mujoco.Renderer(model, 16, 16).render()
"""


def choose_opengl(wanted: bool) -> bool:
    """Sets MUJOCO_GL to a backend that renders here, before dm_control is imported; later calls repeat the answer.

    A backend is tried in a child process, because one that fails takes its process with it. A backend the user chose
    is the only one tried.

    Args:
        wanted: whether anything will be rendered; if not, no backend is looked for.

    Returns:
        Whether rendering works.
    """
    if "dm_control" in sys.modules:
        return os.environ.get("MUJOCO_GL") != "disabled"
    if not wanted:
        os.environ["MUJOCO_GL"] = "disabled"
        return False
    chosen = os.environ.get("MUJOCO_GL")
    if sys.platform == "darwin" and chosen is None:
        return True  # macOS has its own OpenGL, which needs no name
    for backend in [chosen] if chosen else ["egl", "osmesa"]:
        environment = os.environ | {"MUJOCO_GL": backend}
        probe = subprocess.run([sys.executable, "-c", _PROBE], env=environment, capture_output=True, check=False)
        if probe.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            return True
    os.environ["MUJOCO_GL"] = "disabled"
    return False


def wants_opengl(env: str, films: bool) -> bool:
    """Whether something will be rendered: quadruped_escape renders its terrain while it is built."""
    return films or env == "quadruped_escape"


def import_envs(opengl: bool) -> tuple[Any, bool]:
    """Chooses an OpenGL and then imports the environments, as dm_control reads the choice when it is imported.

    Args:
        opengl: whether anything will be rendered.

    Returns:
        The module `envs.make`, and whether rendering works.
    """
    has_opengl = choose_opengl(opengl)
    from envs import make  # not before the choice

    return make, has_opengl


def can_film(renders: bool) -> bool:
    """Says in a line that there will be no videos where nothing renders; returns `renders`."""
    if not renders:
        print(NO_OPENGL)
    return renders
