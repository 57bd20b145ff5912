"""What this machine can do: device, precision, free cores."""

import os
from multiprocessing import parent_process

import torch

from settings.operating_system import usable_cpus
from utils import UserError

SHARED = "RUNS_SHARE_THE_CORES"  # environment variable of processes of a sweep that trains several runs at a time


def resolve_device(name: str) -> torch.device:
    """Returns the device of a name; `auto` is cuda if there is a GPU, else cpu."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if name != "cpu" and (kind != "cuda" or int(index or 0) >= torch.cuda.device_count()):
        found = f"{torch.cuda.device_count()} NVIDIA GPU(s) found"
        raise UserError(f"device={name}: no such device here ({found}); choose auto, cpu, cuda or cuda:<index>")
    return torch.device(name)


def set_precision(precision: str, device: torch.device) -> str:
    """Sets the precision of float32 matmuls; `auto` is tf32 on a GPU that has it, otherwise fp32.

    With bf16 they stay in fp32: the agent's `autocast_dtype` then decides which of its matmuls are in bf16. Returns
    the precision: fp32, tf32 or bf16.
    """
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if precision == "tf32" and not has_tf32:
        raise UserError(f"precision=tf32: {device} does not have it; choose auto, fp32 or bf16")
    chosen = ("tf32" if has_tf32 else "fp32") if precision == "auto" else precision
    torch.set_float32_matmul_precision("high" if chosen == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = chosen == "tf32"  # the same for convolutions
    torch.backends.cudnn.deterministic = True  # so that captured and eager updates can be compared
    return chosen


def has_free_core(device: torch.device) -> bool:
    """Returns whether the updates leave a core free.

    Without one, a second process or thread would slow them down: the threads of an update wait for each other.
    """
    if device.type == "cuda":
        return True
    return SHARED not in os.environ and usable_cpus() > torch.get_num_threads()


def free_cores(device: str) -> int:
    """Returns how many threads may step worlds in this process; `device` is the run's, by its key's value.

    A sweep's other runs need the cores, too. Beside an evaluation in a process of its own, a CPU trains on the other
    cores, and a GPU's training needs one core.
    """
    if SHARED in os.environ:
        return 1
    if parent_process() is None:
        return usable_cpus()
    return max(1, usable_cpus() - 1) if device != "cpu" and torch.cuda.is_available() else 1
