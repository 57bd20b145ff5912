"""What a run was made with: `provenance.json` in its folder, with an entry for each process that worked on it."""

import contextlib
import json
import os
import platform
import subprocess
import sys
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from files.reading import json_or
from files.writing import write_text
from settings.operating_system import of_processor

FILE = "provenance.json"
PACKAGES = ("torch", "numpy", "mujoco", "dm_control", "gymnasium")
CODE = (".py", ".yaml", '.py"', '.yaml"')  # git quotes unusual names
GIT_TIMEOUT_S = 10


class Provenance:
    """Writes this process's entry when it begins and again when it ends; a killed process leaves `ended` empty.

    Entries of earlier processes stay. A failed write does not end the run.
    """

    def __init__(self, folder: Path, device: torch.device, step: int):
        self._path = folder / FILE
        self._earlier: list[Any] = json_or(self._path, [])
        self._entry: dict[str, Any] = {
            "started": _now(),
            "ended": None,
            "from_step": step,
            "to_step": None,
            "command": sys.orig_argv,
            **_commit(Path(__file__).resolve().parents[1]),
            "python": platform.python_version(),
            # torch itself names its build, such as +cpu, which its metadata may lack.
            "packages": {name: _version(name) for name in PACKAGES} | {"torch": str(torch.__version__)},
            "system": platform.platform(),
            "processor": of_processor("model name") or platform.machine(),
            "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
            "threads": torch.get_num_threads(),
        }
        self._note_other_code()
        self._write()

    def _note_other_code(self) -> None:
        """Says so if a run goes on with code of another commit."""
        last = self._earlier[-1] if self._earlier else None
        before, now = last.get("commit") if isinstance(last, dict) else None, self._entry["commit"]
        if isinstance(before, str) and before.isalnum() and now and before != now:
            print(f"The code is of commit {now[:10]}; the run was made with {before[:10]} so far", flush=True)

    def end(self, step: int) -> None:
        """Adds the time at which the process ended, and the environment step."""
        self._entry |= {"ended": _now(), "to_step": step}
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            write_text(self._path, json.dumps([*self._earlier, self._entry], indent=1) + "\n")


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit(root: Path) -> dict[str, Any]:
    """Returns the commit of the code, and whether it lacks something: a change of a file that git tracks, or a new file
    of code (.py, .yaml) beside such files. None without git.

    Args:
        root: the folder of the code. A repository that does not track it, such as around an installed copy, is ignored.
    """
    # Without GIT_DIR and the like, which git sets for its hooks.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        options: dict[str, Any] = {"env": environment, "timeout": GIT_TIMEOUT_S, "text": True}
        return subprocess.run(command, check=True, capture_output=True, **options).stdout

    try:
        git("ls-files", "--error-unmatch", str(Path("run") / Path(__file__).name))
        commit = git("rev-parse", "HEAD").strip()
        lines = git("status", "--porcelain", "--untracked-files=normal").splitlines()
        return {"commit": commit, "changed": any(not line.startswith("??") or line.endswith(CODE) for line in lines)}
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return {"commit": None, "changed": None}
