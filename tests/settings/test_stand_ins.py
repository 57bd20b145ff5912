"""Classes read without what they stand on."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from runs import ROOT

# A module of a project, and a package `slow` elsewhere that must not be imported.
OWN = """
import gymnasium as gym
import slow.nn as nn
import slow
from slow.nn import functional as F
from settings.hints import parameters
from settings.types import PositiveInt

{module}
"""
READ = """
import sys
from pathlib import Path
from settings import stand_ins
from settings.hints import fit, parameters
stand_ins.ROOT = Path.cwd()
try:
    with stand_ins.stand_ins():
        import own
        print({read})
except stand_ins.LaterError:
    print("later")
print(sorted({{"own", "slow", "slow.nn", "gymnasium"}} & sys.modules.keys()))
import own
"""
PLAIN = "class Net(nn.Module):\n    def __init__(self, width: PositiveInt, of: nn.Kind | None = None): ..."


@pytest.mark.parametrize(
    ("module", "read", "said"),
    [
        (PLAIN, "list(parameters(own.Net))", "['width', 'of']"),
        (PLAIN, "fit(parameters(own.Net)['of'].hint, 'anything')", "anything"),  # nn.Kind may be a name of a text's
        (PLAIN.replace("nn.Module", "nn.Linear"), "list(parameters(own.Net))", "later"),
        ("class Net(nn.Module): ...", "list(parameters(own.Net))", "later"),
        (
            "@slow.no_grad()\ndef f(x: int): ...\n@slow.disable\ndef g(y: F.Kind): ...",
            "list(parameters(own.f))",
            "['x']",
        ),
        ("def f(x: int = slow.pi): ...", "list(parameters(own.f))", "['x']"),
        ("E = slow.eps * 2", "own.E", "later"),
        ("E = float(slow.eps)", "own.E", "later"),
        ("E = slow.__version__ > '2'", "own.E", "later"),
        ("for one in slow.ones: pass", "own", "later"),
        ("E = {}[slow.key]", "own.E", "later"),
        ("def f(): return slow.pi()", "own.f()", "later"),
        ("gym.register('Mine-v0', entry_point='own:Env')", "own", "later"),
    ],
)
def test_what_is_read_without_it(module: str, read: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN.format(module=textwrap.dedent(module)))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "slow.py").write_text("raise RuntimeError('imported')")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{elsewhere}"}
    command = [sys.executable, "-c", READ.format(read=read)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert ran.stdout.splitlines() == [said, "[]"], ran.stderr
    assert "RuntimeError: imported" in ran.stderr  # now that it is imported as it is
