"""What this machine can do: its device, its precision, its cores and its rendering."""

import os
import time
from typing import Any

import torch

from agent.networks.matmul import fast_matmul
from envs import opengl
from settings.operating_system import usable_cpus
from settings.schema import Settings
from utils import UserError

# Of (batch, width) by (width, width): target actor 1, target critics 2, critics 2 forward and 4 backward, then for the
# actor 1 forward and 2 backward through itself, 2 and 2 through the critics.
PRODUCTS_PER_UPDATE = 16
PARENT = "ENDS_WITH_PROCESS"  # set by a pool, which has a run on each core, to the process that a run ends with
STEPS_WORTH_A_PROCESS = 10_000


def notes(cfg: Settings, device: torch.device, renders: bool) -> list[str]:
    """Lines to print when a run begins: what this machine cannot do, or only slowly."""
    no_videos = opengl.NO_OPENGL if cfg.save_video and not renders else ""
    return [note for note in (no_videos, _speed_note(cfg, device), _bf16_note(cfg, device)) if note]


def _speed_note(cfg: Settings, device: torch.device) -> str:
    """What to expect where a CPU gets a GPU's work, from the time of the matmuls that dominate an update."""
    batch_size, width = cfg.agent.get("batch_size", 0), cfg.agent.get("critic", {}).get("hidden_dim", 0)
    if device.type != "cpu" or batch_size * width**2 < 2**27:
        return ""
    if cfg.agent.get("encoder"):
        return "This agent is made for a GPU: expect seconds for each decision. preset=pixels_cpu is made for a CPU."
    x, weight = torch.zeros(batch_size, width), torch.zeros(width, width)
    torch.mm(x, weight)
    started_s = time.perf_counter()
    torch.mm(x, weight)
    steps_per_second = 1 / ((time.perf_counter() - started_s) * PRODUCTS_PER_UPDATE * cfg.updates_per_step)
    return (
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
        UserError: for tf32 on a device without it.
    """
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if precision == "tf32" and not has_tf32:
        raise UserError(f"precision=tf32: {device} has no such products; choose auto, fp32 or bf16")
    chosen = ("tf32" if has_tf32 else "fp32") if precision == "auto" else precision
    torch.set_float32_matmul_precision("high" if chosen == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = chosen == "tf32"  # of convolutions
    torch.backends.cudnn.deterministic = True  # so that a replayed update can be held against an eager one
    return chosen


def bf16_time_ratio(batch_size: int, width: int) -> float:
    """The time of a (batch_size, width) by (width, width) product in bf16, its conversions included, over fp32's.

    Measured here and now, in milliseconds: flags do not tell. Of processors with AVX512_BF16, those with AMX are faster
    in bf16 than in fp32, those without are slower.
    """
    random = torch.Generator().manual_seed(0)  # not the run's own numbers
    x, weight = torch.randn(batch_size, width, generator=random), torch.randn(width, width, generator=random)
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    for _ in range(4):  # the first of each is dear
        for dtype, measured in seconds.items():
            started_s = time.perf_counter()
            fast_matmul(x.to(dtype), weight.to(dtype)).float()
            measured.append(time.perf_counter() - started_s)
    return min(seconds[torch.bfloat16]) / min(seconds[torch.float32])


def _bf16_note(cfg: Settings, device: torch.device) -> str:
    """By how much precision=bf16 makes this CPU slower; "" where it does not."""
    width = cfg.agent.get("critic", {}).get("hidden_dim", 0)
    if cfg.precision != "bf16" or device.type != "cpu" or not width:
        return ""
    time_ratio = bf16_time_ratio(cfg.agent["batch_size"], width)
    if time_ratio <= 1:
        return ""
    return (
        f"precision=bf16: at this run's sizes this CPU takes {time_ratio:.1f} times as long for a matmul as with "
        "precision=fp32."
    )


def has_time_for_background(cfg: Settings, device: torch.device) -> bool:
    """Whether a process beside a run would find a core that the run leaves free, for longer than it takes to start."""
    return has_free_core(device) and cfg.num_train_steps >= STEPS_WORTH_A_PROCESS


def has_free_core(device: torch.device) -> bool:
    """Whether updates leave a core alone. Threads of an update wait for each other, so a lost core stops them all."""
    if device.type == "cuda":
        return True
    return PARENT not in os.environ and usable_cpus() > torch.get_num_threads()


def wants_opengl(env: str, films: bool) -> bool:
    """Whether something will be rendered: quadruped_escape renders its terrain while it is built."""
    return films or env == "quadruped_escape"


def import_envs(renders: bool) -> tuple[Any, bool]:
    """Chooses an OpenGL and then imports the environments, as dm_control reads the choice when it is imported.

    Args:
        renders: whether anything will be rendered.

    Returns:
        The module `envs.make`, and whether rendering works.
    """
    has_opengl = opengl.choose(renders)
    from envs import make  # not before the choice

    return make, has_opengl
