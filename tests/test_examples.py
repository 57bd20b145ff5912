import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_library_example_learns() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples/library.py")]
    output = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    assert float(output.split()[-1]) > -500  # a random policy gets about -1200
