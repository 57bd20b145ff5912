"""The policy of a run's best evaluation, kept beside its checkpoints.

checkpoints/best/policy.pt       the policy alone (see agent/policy_file.py)
                 manifest.json   its step, its mean return, the file's checksum; and the same of the one before

The manifest is written first: a policy that a crash left is the one before, and is there with its own numbers.
"""

import contextlib
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from agent.policy import Policy
from agent.policy_file import load_policy, save_policy
from run.saving import checkpoint_files
from run.saving.checkpoint import FOLDER, MANIFEST
from utils import UserError, open_file, require_count, write_atomically

BEST = f"{FOLDER}/best"


def keep(run_folder: Path, policy: Policy, step: int, mean_return: float) -> None:
    """Puts a policy in the place of the best one so far. Where it cannot be written, a line says so.

    A policy that could not be read back (see `save_policy`) is left out, as in a checkpoint.
    """
    folder = run_folder / BEST
    partial = folder / ".policy.pt.part"
    try:
        for level in (folder.parent, folder):
            level.mkdir(exist_ok=True)  # and not the run's folder, if somebody has removed it
        with contextlib.suppress(UserError):
            digest = checkpoint_files.write_file(lambda path: save_policy(policy, path), partial)
            manifest = {"step": step, "return": mean_return, "parts": {"policy": digest}, "before": _before(folder)}
            write_atomically(folder / MANIFEST, json.dumps({"manifest": manifest}, indent=1))
            partial.replace(folder / "policy.pt")
    except OSError as error:
        print(f"The best policy so far, of step {step}, is not kept: {error.strerror}", file=sys.stderr, flush=True)


def load(run_folder: Path, device: str) -> tuple[Policy, int, float]:
    """The best policy of a run, its step, and its mean return then; a training at work may put a better one there.

    Raises:
        UserError: if there is none, or it is not as it was written.
    """
    folder = run_folder / BEST
    try:
        for is_last in (False, False, True):
            said = _manifest(folder)
            try:
                policy = load_policy(folder / "policy.pt", device)
            except UserError:
                if is_last:
                    raise
                continue
            if kept := _of(_digest(folder), said):
                return policy, require_count(kept["step"], "step"), float(kept["return"])
        raise UserError(f"{folder}: its policy changes while it is read; try again")
    except OSError:
        raise UserError(f"{folder}: no policy of a best evaluation; one is kept after the first evaluation") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{folder / MANIFEST}: not as it was written") from None


def _before(folder: Path) -> dict[str, Any] | None:
    """What the manifest says of the policy that is there; None if there is none, or it is not as it was written."""
    try:
        found = _of(_digest(folder), _manifest(folder))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return found and {key: value for key, value in found.items() if key != "before"}


def _manifest(folder: Path) -> dict[str, Any]:
    with open_file(folder / MANIFEST) as file:
        return json.loads(file.read())["manifest"]


def _digest(folder: Path) -> str:
    with open_file(folder / "policy.pt") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _of(digest: str, said: dict[str, Any]) -> dict[str, Any] | None:
    """The policy with that checksum, of the two that a manifest speaks of."""
    return next((one for one in (said, said.get("before")) if one and one["parts"]["policy"] == digest), None)
