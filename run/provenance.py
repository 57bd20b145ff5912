"""What a run was made with: `provenance.json` in its folder, with an entry for each process that worked on it."""

import contextlib
import json
import platform
import shutil
import subprocess
import sys
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from settings.operating_system import of_processor
from utils import write_atomic

FILE = "provenance.json"
PACKAGES = ("torch", "numpy", "mujoco", "dm_control", "gymnasium")
ROOT = Path(__file__).resolve().parents[1]


class Provenance:
    """Writes this process's entry when it begins and again when it ends; a killed process leaves `ended` empty.
    Prints a line if a run goes on with code of another commit, or with changes that are in none."""

    def __init__(self, folder: Path, device: torch.device, step: int):
        self._path = folder / FILE
        self._earlier: list[Any] = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else []
        commit, changed = find_commit(ROOT)
        before = self._earlier[-1]["commit"] if self._earlier else None
        if before and commit and (before != commit or changed):
            now = f"{commit[:10]}, with uncommitted changes" if changed else commit[:10]
            print(f"The code is of commit {now}; the run was made with {before[:10]} so far", flush=True)
        self._entry: dict[str, Any] = {
            "started": _now(),
            "ended": None,
            "from_step": step,
            "to_step": None,
            "command": sys.orig_argv,
            "commit": commit,
            "changed": changed,
            "python": platform.python_version(),
            # torch itself names its build, such as +cpu, which its metadata may lack.
            "packages": {name: metadata.version(name) for name in PACKAGES} | {"torch": str(torch.__version__)},
            "system": platform.platform(),
            "processor": of_processor("model name") or platform.machine(),
            "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
            "threads": torch.get_num_threads(),
        }
        self._write()

    def end(self, step: int) -> None:
        """Adds the time at which the process ended, and the environment step."""
        self._entry |= {"ended": _now(), "to_step": step}
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # a full disk
            write_atomic(self._path, json.dumps([*self._earlier, self._entry], indent=1) + "\n")


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def find_commit(root: Path) -> tuple[str | None, bool | None]:
    """Returns the commit of the code in a repository's folder, and whether the code differs from it: in changed files,
    or in new .py and .yaml files. None without git, and for an installed copy, even within another repository."""
    if not (root / ".git").exists() or not shutil.which("git"):
        return None, None
    command = ["git", "--no-optional-locks", "-C", str(root), "status", "--porcelain=v2", "--branch"]
    lines = subprocess.run(command, check=False, capture_output=True, text=True).stdout.splitlines()
    commit = next((line.split()[2] for line in lines if line.startswith("# branch.oid")), None)
    changes = [line for line in lines if not line.startswith("#")]
    return commit, any(not line.startswith("?") or line.endswith((".py", ".yaml")) for line in changes)
