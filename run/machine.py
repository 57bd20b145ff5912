"""What this machine can do: device, precision, cores and rendering; and hints where a run would be slow on it."""

import os
import time
from multiprocessing import parent_process

import torch

from agent.networks.matmul import fast_matmul
from settings.operating_system import usable_cpus
from settings.schema import Settings
from utils import UserError

# Matmuls of (batch, width) by (width, width) in one update of networks with two hidden layers. For the target: 1 in the
# actor, 2 in the critics. For the critics' step: 2 forward, 4 backward. For the actor's step: 1 forward and 2 backward
# in the actor, 2 forward and 2 backward in the critics.
MATMULS_PER_UPDATE = 16
PARENT = "ENDS_WITH_PROCESS"  # environment variable that a pool with a run per core sets: a run ends with this process


def notes(cfg: Settings, device: torch.device) -> list[str]:
    """Returns lines to print when a run begins, about what is slow on this machine."""
    lines = []
    batch_size, width = cfg.agent.get("batch_size", 0), cfg.agent.get("critic", {}).get("hidden_dim", 0)
    if device.type == "cpu" and batch_size * width**2 >= 2**27:
        lines.append(_slow_on_a_cpu(cfg, batch_size, width))
    if device.type == "cpu" and width and cfg.precision == "bf16" and (ratio := bf16_time_ratio(batch_size, width)) > 1:
        lines.append(
            f"precision=bf16: at this run's sizes this CPU takes {ratio:.1f} times as long for a matmul as with "
            "precision=fp32."
        )
    return lines


def _slow_on_a_cpu(cfg: Settings, batch_size: int, width: int) -> str:
    """Returns the speed to expect of a GPU's agent on a CPU, from the time of the matmuls that dominate an update."""
    if cfg.agent.get("encoder"):
        return "This agent is made for a GPU: expect seconds for each decision. preset=pixels_cpu is made for a CPU."
    x, weight = torch.zeros(batch_size, width), torch.zeros(width, width)
    torch.mm(x, weight)
    started_s = time.perf_counter()
    torch.mm(x, weight)
    steps_per_second = 1 / ((time.perf_counter() - started_s) * MATMULS_PER_UPDATE * cfg.updates_per_step)
    return (
        f"This agent is made for a GPU: expect about {steps_per_second:.1f} steps per second on this CPU. "
        "preset=fast learns in minutes."
    )


def resolve_device(name: str) -> torch.device:
    """Returns the device of a name; `auto` is cuda if there is a GPU, else cpu.

    Raises:
        UserError: if torch does not know the name, or this machine does not have the device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device={name}: no such device; choose auto, cpu, cuda or cuda:<index>") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device={name}: {torch.cuda.device_count()} NVIDIA GPU(s) found here; choose auto or cpu")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device={name}: only cpu and cuda are supported; choose auto, cpu, cuda or cuda:<index>")
    return device


def set_precision(precision: str, device: torch.device) -> str:
    """Sets the precision of float32 matmuls; `auto` is tf32 on a GPU that has it, otherwise fp32.

    With bf16 they stay in fp32: the agent's `autocast_dtype` then decides which of its matmuls are in bf16.

    Returns:
        The precision: fp32, tf32 or bf16.

    Raises:
        UserError: for tf32 on a device without it.
    """
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if precision == "tf32" and not has_tf32:
        raise UserError(f"precision=tf32: {device} does not have it; choose auto, fp32 or bf16")
    chosen = ("tf32" if has_tf32 else "fp32") if precision == "auto" else precision
    torch.set_float32_matmul_precision("high" if chosen == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = chosen == "tf32"  # the same for convolutions
    torch.backends.cudnn.deterministic = True  # so that captured and eager updates can be compared
    return chosen


def bf16_time_ratio(batch_size: int, width: int) -> float:
    """Measures a (batch_size, width) by (width, width) matmul; returns its time in bf16, divided by its time in fp32.

    The conversions to and from bf16 are included. CPU flags cannot replace the measurement, which takes milliseconds:
    Intel's processors with AVX512_BF16 but without AMX are slower in bf16 than in fp32.
    """
    random = torch.Generator().manual_seed(0)  # leaves the run's own generator unchanged
    x, weight = torch.randn(batch_size, width, generator=random), torch.randn(width, width, generator=random)
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    for _ in range(4):  # the first measurement of each dtype is slower
        for dtype, measured in seconds.items():
            started_s = time.perf_counter()
            fast_matmul(x.to(dtype), weight.to(dtype)).float()
            measured.append(time.perf_counter() - started_s)
    return min(seconds[torch.bfloat16]) / min(seconds[torch.float32])


def has_free_core(device: torch.device) -> bool:
    """Returns whether the updates leave a core free.

    Without one, a second process or thread would slow them down: the threads of an update wait for each other.
    """
    if device.type == "cuda":
        return True
    return PARENT not in os.environ and usable_cpus() > torch.get_num_threads()


def free_cores(device: str) -> int:
    """Returns how many threads may step worlds in this process; `device` is the run's, by its key's value.

    A sweep's other runs need the cores, too. Beside an evaluation in a process of its own, a CPU trains on the other
    cores, and a GPU's training needs one core.
    """
    if PARENT in os.environ:
        return 1
    if parent_process() is None:
        return usable_cpus()
    return max(1, usable_cpus() - 1) if device != "cpu" and torch.cuda.is_available() else 1
