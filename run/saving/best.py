"""The policy of a run's best evaluation.

checkpoints/best/policy.pt       the policy alone (see agent/policy_file.py)
                 manifest.json   step, mean return and checksum of this policy, and of the one before it

The manifest is written first. If a crash prevents the new policy from being written, the old one is still there, and
the manifest still describes it.
"""

import copy
import json
import sys
from pathlib import Path
from typing import Any

from agent.policy import Policy
from agent.policy_file import load_policy, plain_policy
from files.reading import checksum, read_json
from files.tensors import save_plain
from files.writing import NewFile, make_folder, write_text
from run.saving.checkpoint import FOLDER, MANIFEST
from utils import UserError, require_count

BEST = f"{FOLDER}/best"
_NOT_A_MANIFEST = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


class BestPolicy:
    """Keeps the policy of a run's best evaluation, on the disk and in its checkpoints.

    So a run that goes back to a checkpoint also goes back to the best policy at that time.
    """

    def __init__(self, run_folder: Path):
        self._folder = run_folder / BEST
        self._entry: dict[str, Any] | None = None  # step, return, and the policy as plain values
        self._has_said = False  # that there is none

    def keep(self, policy: Policy, step: int, mean_return: float) -> None:
        """Replaces the best policy. If it cannot be written, prints a line on standard error.

        A policy that could not be loaded again (see `save_policy`) is not saved, as in checkpoints; a line says so.
        """
        try:
            plain = plain_policy(policy)
        except UserError as error:
            if not self._has_said:
                print(f"{BEST} is not kept, nor policy.pt in checkpoints: {error}", flush=True)
            self._has_said = True
            return
        self._entry = {"step": step, "return": mean_return, "policy": copy.deepcopy(plain)}
        self._write()

    def _write(self) -> None:
        assert self._entry is not None
        step, folder = self._entry["step"], self._folder
        try:
            for level in (folder.parent, folder):
                make_folder(level)  # without the run's folder: if the user deleted it, it stays deleted
            with NewFile(folder / "policy.pt") as file:
                parts = {"policy": save_plain(self._entry["policy"], file)}
                entry = {"step": step, "return": self._entry["return"], "parts": parts, "before": _previous(folder)}
                write_text(folder / MANIFEST, json.dumps({"manifest": entry}, indent=1))
        except OSError as error:
            message = f"The best policy so far, of step {step}, could not be saved: {error.strerror}"
            print(message, file=sys.stderr, flush=True)

    def state_dict(self) -> dict[str, Any]:
        return {"entry": self._entry}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state, and replaces a later policy on the disk."""
        saved = state["entry"]
        if saved is None:
            for name in (MANIFEST, "policy.pt"):
                (self._folder / name).unlink(missing_ok=True)
            return
        self._entry = {"step": require_count(saved["step"], "step"), "return": float(saved["return"])}
        self._entry["policy"] = saved["policy"]
        if _step_on_disk(self._folder) != self._entry["step"]:
            self._write()


def load(run_folder: Path, device: str) -> tuple[Policy, int, float]:
    """Loads a run's best policy; the run may replace it meanwhile.

    Returns:
        The policy, the step of its evaluation, and that evaluation's mean return.

    Raises:
        UserError: if there is none, or its files are damaged.
    """
    folder = run_folder / BEST
    try:
        for is_last in (False, False, True):  # tries again if the policy was replaced while it was read
            manifest = _read_manifest(folder)
            try:
                policy = load_policy(folder / "policy.pt", device)
            except UserError:
                if is_last:
                    raise
                continue
            if entry := _matching_entry(manifest, folder):
                return policy, require_count(entry["step"], "step"), float(entry["return"])
        raise UserError(f"{folder}: its policy changes while it is read; try again")
    except OSError:
        raise UserError(
            f"{folder}: no policy of a best evaluation; one is kept after the first evaluation, "
            "unless the actor has parts of a class outside of agent/"
        ) from None
    except _NOT_A_MANIFEST:
        raise UserError(f"{folder / MANIFEST}: damaged, or not a manifest") from None


def result_of(run_folder: Path) -> tuple[int, float] | None:
    """Returns the step and the mean return of a run's best evaluation; None if no best policy is kept, or its manifest
    is damaged."""
    try:
        manifest = _read_manifest(run_folder / BEST)
        return require_count(manifest["step"], "step"), float(manifest["return"])
    except (OSError, *_NOT_A_MANIFEST):
        return None


def _step_on_disk(folder: Path) -> int | None:
    """Returns the manifest's step, if it describes the policy on the disk."""
    try:
        manifest = _read_manifest(folder)
        return manifest["step"] if _matching_entry(manifest, folder) is manifest else None
    except (OSError, *_NOT_A_MANIFEST):
        return None


def _previous(folder: Path) -> dict[str, Any] | None:
    """Returns the manifest's entry for the policy on the disk; None if there is none, or its files are damaged."""
    try:
        entry = _matching_entry(_read_manifest(folder), folder)
    except (OSError, *_NOT_A_MANIFEST):
        return None
    return entry and {key: value for key, value in entry.items() if key != "before"}


def _read_manifest(folder: Path) -> dict[str, Any]:
    return read_json(folder / MANIFEST)["manifest"]


def _matching_entry(manifest: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """Returns whichever of a manifest's two entries describes the policy on the disk; None if neither does."""
    sha256 = checksum(folder / "policy.pt")
    entries = (manifest, manifest.get("before"))
    return next((entry for entry in entries if entry and entry["parts"]["policy"] == sha256), None)
