"""The policy of a run's best evaluation: `checkpoints/best/policy.pt`, with the evaluation's step and mean return."""

import copy
import sys
from pathlib import Path
from typing import Any

import torch

from agent.policy import Policy
from agent.policy_file import load_policy, plain_policy
from utils import UserError, replacing

BEST = "checkpoints/best"


class BestPolicy:
    """Keeps the best policy so far, on the disk and in checkpoints: a run that goes back goes back to its best, too.

    Attributes:
        saved: what the file holds; None without a file.
    """

    def __init__(self, run_folder: Path):
        self._path = run_folder / BEST / "policy.pt"
        self.saved: dict[str, Any] | None = None

    def keep(self, policy: Policy, step: int, mean_return: float) -> None:
        """Replaces the best policy, unless it has networks that no file can name. A full disk is one printed line."""
        try:
            self.saved = copy.deepcopy(plain_policy(policy)) | {"step": step, "return": mean_return}
            self._write()
        except UserError:
            return
        except (OSError, RuntimeError) as error:
            print(f"The best policy so far, of step {step}, could not be saved: {error}", file=sys.stderr, flush=True)

    def _write(self) -> None:
        for folder in (self._path.parents[1], self._path.parent):
            folder.mkdir(exist_ok=True)
        with replacing(self._path) as partial:
            torch.save(self.saved, partial)

    def state_dict(self) -> dict[str, Any]:
        return {"saved": self.saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state, and replaces a later policy on the disk."""
        self.saved = state["saved"]
        self._path.unlink(missing_ok=True) if self.saved is None else self._write()


def load_best(run_folder: Path, device: str = "cpu") -> tuple[Policy, int, float]:
    """Returns a run's best policy, and the step and mean return of its evaluation; raises UserError without one."""
    path = run_folder / BEST / "policy.pt"
    if not path.exists():
        raise UserError(f"{path}: missing; it is written after the first evaluation, unless a network is your class")
    saved = torch.load(path, map_location="cpu", weights_only=True)
    return load_policy(path, device), saved["step"], saved["return"]
