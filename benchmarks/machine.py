"""Describes how a result was measured: command, date, machine, torch version."""

import datetime
import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def processor() -> str:
    """Returns the processor's model name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.processor())


def circumstances() -> dict[str, str]:
    """Returns the circumstances that a result file records; the command is the running script's."""
    script = Path(sys.argv[0]).resolve().relative_to(ROOT)
    return {
        "command": shlex.join(["python", str(script), *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "torch": version("torch"),
    }
