"""A policy exported from its run: one file, and a JSON file with all that is needed to evaluate it.

policies/cheetah_run.pt        the policy alone (agent/policy_file.py)
         cheetah_run.pt.json   where it comes from, and in `settings` the run's whole configuration
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from files.reading import checksum
from run.saving import trust
from run.saving.resume import of_this_version
from settings import plain_yaml
from settings.schema import Settings, check
from utils import UserError, require_count


class PolicyBundle(NamedTuple):
    """The content of a policy's JSON file; `evaluation` has `step`, `mean` and `std`, if the policy was evaluated."""

    cfg: Settings
    step: int
    evaluation: dict[str, float | None] | None


def is_bundle(path: Path) -> bool:
    """Returns whether a path names an exported policy, and not a run's folder or a checkpoint."""
    return path.suffix == ".pt"


def json_of(path: Path) -> Path:
    """Returns the path of a policy's JSON file."""
    return path.with_name(f"{path.name}.json")


def read(path: Path, trusted: Sequence[str] = ()) -> PolicyBundle:
    """Reads the JSON file of a policy, and compares the policy with its checksum; imports and runs no untrusted code.

    Raises:
        UserError: if one of the two files is missing or has changed.
    """
    json_path = json_of(path)
    try:
        sha256 = checksum(path)
        # Read like an untrusted configuration: OmegaConf would call what an interpolation names.
        about = plain_yaml.load(json_path, resolved=True)
        settings, step, saved_checksum = about["settings"], require_count(about["step"], "step"), about["sha256"]
        evaluation = about["return"] and {
            "step": require_count(about["return"]["step"], "step"),
            "mean": float(about["return"]["mean"]),
            "std": None if about["return"]["std"] is None else float(about["return"]["std"]),
        }
        settings = of_this_version(settings, has_images=about["input"]["dtype"] == "uint8")
    except OSError as error:
        hint = "`export.py <run> --format policy` writes a policy and a JSON beside it"
        if (path.parent / "manifest.json").exists():
            hint = f"give the checkpoint's folder, {path.parent}"
        raise UserError(f"{error.filename}: {error.strerror}; {hint}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{json_path}: not what export.py writes beside a policy ({type(error).__name__})") from None
    if sha256 != saved_checksum:
        raise UserError(f"{path}: has changed since {json_path.name} beside it was written")
    trust.require(settings, json_path, trusted)
    try:
        return PolicyBundle(check(settings), step, evaluation)
    except UserError as error:
        raise UserError(f"{json_path}: {error}") from None
