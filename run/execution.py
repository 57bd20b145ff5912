"""What a run computes with: device, precision, cores, and how updates run (`execution` in config/train.yaml)."""

import os
from multiprocessing import parent_process
from typing import Any

import torch

from agent.execution.captured import Captured, CudaGraphs
from agent.execution.compiled import CompiledStep
from agent.execution.recorded import Recorded
from agent.execution.tracing import TracedByShape
from settings.operating_system import CORES_SHARED, usable_cpus
from settings.types import Execution
from utils import UserError


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
    """Sets the precision of float32 matmuls, and returns it: fp32 or tf32. `auto` is tf32 on a GPU that has it."""
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if precision == "tf32" and not has_tf32:
        raise UserError(f"precision=tf32: {device} does not have it; choose auto or fp32")
    chosen = ("tf32" if has_tf32 else "fp32") if precision == "auto" else precision
    torch.set_float32_matmul_precision("high" if chosen == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = chosen == "tf32"  # the same for convolutions
    torch.backends.cudnn.deterministic = True  # so that captured and eager updates can be compared
    torch.set_flush_denormal(True)  # numbers below 1e-38, which dead units leave, are slow (docs/DECISIONS.md)
    return chosen


def has_free_core(device: torch.device) -> bool:
    """Returns whether the updates leave a core free; otherwise a second process or thread would slow them down."""
    if device.type == "cuda":
        return True
    return CORES_SHARED not in os.environ and usable_cpus() > torch.get_num_threads()


def world_threads(device: str) -> int:
    """Returns how many threads may step worlds in this process, beside a sweep's other runs or, in the process that
    evaluates, beside the training; `device` is the value of the run's key."""
    if CORES_SHARED in os.environ:
        return 1
    if parent_process() is None:
        return usable_cpus()
    return max(1, usable_cpus() - 1) if device != "cpu" and torch.cuda.is_available() else 1


def choose_execution(execution: Execution, agent: Any, device: torch.device) -> str:
    """Resolves `execution` for this agent on this device; `auto` is the fastest that the agent allows."""
    on_gpu = device.type == "cuda"
    if execution == "eager":
        return "eager"
    obstacle = agent.recording_obstacle()
    if execution == "auto":
        fastest = "captured" if on_gpu else "recorded"
        return "eager" if obstacle else fastest
    if obstacle:
        raise UserError(f"execution={execution}: {obstacle}; choose eager")
    if (execution == "recorded" and on_gpu) or ("captured" in execution and not on_gpu):
        raise UserError(f"execution={execution}: not on device={device}; choose auto or eager")
    return execution


def set_execution(agent: Any, execution: str, device: torch.device) -> None:
    """Sets how a new agent, which is eager, updates and acts: to a result of `choose_execution`."""
    if "compiled" in execution:
        agent.compiled_step = CompiledStep(agent)
    if execution == "recorded":
        agent.execution = Recorded()
        for policy in (agent.policy, agent.newest_policy):
            policy.choose = TracedByShape(policy.actions)
    if "captured" in execution:
        agent.execution = Captured(CudaGraphs(device))
