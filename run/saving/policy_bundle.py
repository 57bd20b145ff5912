"""A run's policy taken out of its folder: a file, and a JSON beside it that says all that playing it takes.

policies/cheetah_run.pt        the policy alone (agent/policy_file.py)
         cheetah_run.pt.json   what it is of, and in `settings` the run's whole configuration
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from run.saving import trust
from run.saving.resume import SHAPES
from settings import plain_yaml as saved_yaml
from settings.schema import Settings, check
from utils import UserError, open_file, require_count


class PolicyBundle(NamedTuple):
    """What a policy's file is of.

    Attributes:
        cfg: of the run that it is from.
        step: environment steps of its training.
        evaluation: its `step`, `mean` and `std`; None if there was none.
    """

    cfg: Settings
    step: int
    evaluation: dict[str, float | None] | None


def is_file(path: Path) -> bool:
    """Whether a path is meant to be such a file: nothing else of a run that is played is one."""
    return path.suffix == ".pt"


def json_of(path: Path) -> Path:
    """The JSON of a policy's file."""
    return path.with_name(f"{path.name}.json")


def read(path: Path, trusted: Sequence[str] = ()) -> PolicyBundle:
    """What a policy's file is of. Nothing that it names is run but this project's classes and what is trusted.

    Args:
        path: of the policy.
        trusted: packages whose classes its configuration may name beside this project's (see run/saving/trust.py).

    Raises:
        UserError: if one of the two files is missing, or is not as it was written.
    """
    about = json_of(path)
    try:
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with open_file(about) as file:
            # As a stranger's YAML is read: OmegaConf would call what an interpolation names.
            said = saved_yaml.parse(file.read(saved_yaml.MOST_BYTES + 1), about, resolved=True)
        settings, step, expected = said["settings"], require_count(said["step"], "step"), said["sha256"]
        evaluation = said["return"] and {
            "step": require_count(said["return"]["step"], "step"),
            "mean": float(said["return"]["mean"]),
            "std": None if said["return"]["std"] is None else float(said["return"]["std"]),
        }
        for key in SHAPES:
            settings["agent"].pop(key, None)
    except OSError as error:
        missing = "; `export.py <run> --format policy` writes a policy and a JSON beside it"
        raise UserError(f"{error.filename}: {error.strerror}{missing}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{about}: not what export.py writes beside a policy ({type(error).__name__})") from None
    if digest != expected:
        raise UserError(f"{path}: has changed since {about.name} beside it was written")
    trust.require(settings, about, trusted)
    try:
        return PolicyBundle(check(settings), step, evaluation)
    except UserError as error:
        raise UserError(f"{about}: {error}") from None
