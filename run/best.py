"""The policy of a run's best evaluation: `checkpoints/best/policy.pt`, with the evaluation's step and mean return."""

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from agent.policy import Policy, load_policy, plain_policy
from utils import UserError, replacing

BEST = "checkpoints/best"


class BestPolicy:
    """Keeps the best policy so far, on the disk and in checkpoints: a run that goes back goes back to its best, too."""

    def __init__(self, run_folder: Path):
        self._path = run_folder / BEST / "policy.pt"
        self._saved: dict[str, Any] | None = None

    def keep(self, policy: Policy, step: int, mean_return: float) -> None:
        """Replaces the best policy, unless the agent's `build` made none of it. A full disk is one printed line."""
        try:
            self._saved = copy.deepcopy(plain_policy(policy)) | {"step": step, "return": mean_return}
            self._write()
        except UserError:
            return
        except (OSError, RuntimeError) as error:
            print(f"The best policy so far, of step {step}, could not be saved: {error}", file=sys.stderr, flush=True)

    def _write(self) -> None:
        for folder in (self._path.parents[1], self._path.parent):
            folder.mkdir(exist_ok=True)
        with replacing(self._path) as partial:
            torch.save(self._saved, partial)

    def state_dict(self) -> dict[str, Any]:
        return {"saved": self._saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state, and replaces a later policy on the disk."""
        self._saved = state["saved"]
        self._path.unlink(missing_ok=True) if self._saved is None else self._write()


def load_best(run_folder: Path, device: str = "cpu", trusted: Sequence[str] = ()) -> tuple[Policy, int, float]:
    """Returns a run's best policy, and the step and mean return of its evaluation; raises UserError without one."""
    path = run_folder / BEST / "policy.pt"
    if not path.exists():
        raise UserError(
            f"{path}: missing; it is written after the first evaluation, if the agent's `build` made its networks"
        )
    return load_policy(path, device, trusted=trusted), *read_result(run_folder)


def read_result(run_folder: Path) -> tuple[int, float]:
    """Returns the step and the mean return of a run's best evaluation."""
    saved = torch.load(run_folder / BEST / "policy.pt", map_location="cpu", weights_only=True)
    return int(saved["step"]), float(saved["return"])
