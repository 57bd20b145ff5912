"""What a run was made with: `provenance.json` in its folder, with an entry for each process that worked on it."""

import json
import platform
import shutil
import subprocess
import sys
from datetime import datetime
from importlib import metadata
from pathlib import Path

import torch

from settings.operating_system import of_processor
from utils import write_atomic

FILE = "provenance.json"
PACKAGES = ("torch", "numpy", "mujoco", "dm_control", "gymnasium")
ROOT = Path(__file__).resolve().parents[1]


def add_entry(folder: Path, device: torch.device, step: int) -> None:
    """Adds this process, which goes on from an environment step; prints a line if its code is another, or edited."""
    path, (commit, changed) = folder / FILE, find_commit(ROOT)
    entry = {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "from_step": step,
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
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    before = earlier[-1]["commit"] if earlier else None
    if before and commit and (before != commit or changed):
        now = f"{commit[:10]}, with uncommitted changes" if changed else commit[:10]
        print(f"The code is of commit {now}; the run was made with {before[:10]} so far", flush=True)
    write_atomic(path, json.dumps([*earlier, entry], indent=1) + "\n")


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
