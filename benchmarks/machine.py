"""What all measurements share: how they were made, and a run that is not started."""

import datetime
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def circumstances() -> dict[str, str]:
    """Returns the running script's command, date, machine and torch version, for a result's file."""
    from settings.operating_system import of_processor

    return {
        "command": shlex.join(["python", str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{of_processor('model name') or platform.machine()}, {os.cpu_count()} cores",
        "torch": version("torch"),
    }


def make_workspace(folder: Path, overrides: Sequence[str]) -> Any:
    """Builds a run as train.py does, without starting it."""
    from run.workspace import Workspace
    from settings.compose import compose_settings

    return Workspace(compose_settings(*overrides), folder)
