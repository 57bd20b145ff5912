"""The policy of a run's best evaluation, kept beside its checkpoints.

checkpoints/best/policy.pt       the policy alone (see agent/policy_file.py)
                 manifest.json   its step, its mean return, the file's checksum
"""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from agent.policy import Policy
from agent.policy_file import load_policy, save_policy
from run import part_files
from run.checkpoint import FOLDER, MANIFEST
from utils import UserError, open_file, require_count, write_atomically

BEST = f"{FOLDER}/best"


def keep(run_folder: Path, policy: Policy, step: int, mean_return: float) -> None:
    """Puts a policy in the place of the best one so far. Where it cannot be written, a line says so.

    A policy that could not be read back (see `save_policy`) is left out, as in a checkpoint.
    """
    folder = run_folder / BEST
    partial = folder / ".policy.pt.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(UserError):
            digest = part_files.write_file(lambda path: save_policy(policy, path), partial)
            partial.replace(folder / "policy.pt")
            manifest = {"step": step, "return": mean_return, "parts": {"policy": digest}}
            write_atomically(folder / MANIFEST, json.dumps({"manifest": manifest}, indent=1))
    except OSError as error:
        print(f"The best policy so far, of step {step}, is not kept: {error.strerror}", file=sys.stderr, flush=True)


def load(run_folder: Path, device: str) -> tuple[Policy, int, float]:
    """The best policy of a run, its step, and its mean return then.

    Raises:
        UserError: if there is none, or it is not as it was written.
    """
    folder = run_folder / BEST
    try:
        with open_file(folder / MANIFEST) as file:
            manifest: dict[str, Any] = json.loads(file.read())["manifest"]
        step, mean_return = require_count(manifest["step"], "step"), float(manifest["return"])
    except OSError:
        raise UserError(f"{folder}: no policy of a best evaluation; one is kept after the first evaluation") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{folder / MANIFEST}: not as it was written") from None
    return load_policy(folder / "policy.pt", device), step, mean_return
