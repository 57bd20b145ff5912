"""What a result was measured on."""

import platform
from pathlib import Path


def processor() -> str:
    """The processor's own name for itself."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.processor())
