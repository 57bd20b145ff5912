"""How an agent's updates run: operation by operation, recorded, compiled, or as CUDA graphs. A recording gives the same
bytes, the other two the same numbers up to rounding.

On a CPU, Python and autograd take as long as a small network's arithmetic; a recording (agent/execution/tracing.py)
avoids both, also for acting. On a GPU an update is some two hundred kernels of microseconds each, and Python needs
longer to launch them than the GPU to run them; a captured CUDA graph launches them all at once.
"""

from typing import Any

import torch

from agent import Agent
from agent.execution.captured import Captured, CudaGraphs
from agent.execution.compiled import CompiledStep
from agent.execution.eager import Eager
from agent.execution.recorded import Recorded
from agent.off_policy import OffPolicyAgent
from settings.types import Execution
from utils import UserError

COMPILE_BACKEND = "inductor"


def choose_execution(execution: Execution, agent: Any, device: torch.device) -> tuple[str, str]:
    """Resolves `execution` for this agent on this device; returns the choice, and a line that says why `auto` is not
    the fastest ("" if it is)."""
    on_gpu = device.type == "cuda"
    if execution == "eager":
        return "eager", ""
    obstacle = agent.recording_obstacle() if isinstance(agent, Agent) else "the agent makes its updates itself"
    if execution == "auto":
        best = "captured" if on_gpu else "recorded"
        return ("eager", f"Updates run eagerly: {obstacle}.") if obstacle else (best, "")
    if obstacle:
        raise UserError(f"execution={execution}: {obstacle}; choose eager")
    if execution == "recorded" and on_gpu:
        raise UserError(f"execution=recorded: recordings are for a CPU, and device={device}; choose auto or captured")
    if "captured" in execution and not on_gpu:
        raise UserError(f"execution={execution}: CUDA graphs need a GPU, and device={device}; choose auto or eager")
    return execution, ""


def set_execution(agent: Any, execution: str, device: torch.device) -> None:
    """Sets how an agent updates and acts to a result of `choose_execution`; replaces any earlier setting."""
    if isinstance(agent, OffPolicyAgent):
        agent.execution, agent.compiled_step = Eager(), None
        if "policy" in vars(agent):  # created when the agent first acts
            for policy in (agent.policy, agent.newest_policy):  # the same policy where weights are not averaged
                policy.choose = policy.actions
    if "compiled" in execution:
        agent.compiled_step = CompiledStep(agent, COMPILE_BACKEND)
    if execution == "recorded":
        agent.execution = Recorded()
        for policy in (agent.policy, agent.newest_policy):
            policy.trace()
    if "captured" in execution:
        agent.execution = Captured(CudaGraphs(device))
