"""Our modes that see every operation do not import torch's compiler."""

import subprocess
import sys

from runs import ROOT

PROGRAM = """
import sys
import torch
from agent.execution.tracing import trace

layer = torch.nn.Linear(3, 4)
_, replay = trace(lambda inputs: [layer(inputs[0]).detach()], [torch.ones(2, 3)])
assert torch.equal(replay([torch.ones(2, 3)])[0], layer(torch.ones(2, 3)))
print(*[name for name in sys.modules if name == "torch._dynamo"])
"""


def test_the_compiler_is_not_imported() -> None:
    """Importing it would add most of a second to every start."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("\n", 0), done.stderr
