"""The engines behind `hydra/launcher=…` and `hydra/sweeper=…`: what each needs, and whether it can work here."""

import os
import shutil
import socket
from typing import Any

from utils import UserError, one_line

JOBLIB = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"
RAY = "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher"
SLURM = "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher"
TUNING = "hydra_plugins.tuning.TuningSweeper"


def require(launcher: dict[str, Any]) -> None:
    """Raises UserError if a launcher's configuration is wrong, or its cluster cannot be reached from this machine."""
    if launcher["_target_"] == JOBLIB and (type(launcher["n_jobs"]) is not int or launcher["n_jobs"] == 0):
        raise UserError(
            f"hydra.launcher.n_jobs={launcher['n_jobs']}: the number of runs at a time goes here, such as 2"
        )
    if launcher["_target_"] == SLURM and not shutil.which("sbatch"):
        hint = "start it on a machine of the cluster, or try hydra/launcher=slurm_local"
        raise UserError(f"hydra/launcher=slurm: there is no sbatch here; {hint}")
    if launcher["_target_"] == RAY:
        _require_ray(launcher["ray"]["init"])


def _require_ray(init: dict[str, Any]) -> None:
    """Connects this process to the Ray cluster, so that the launcher's plugin finds it connected."""
    address = str(init.get("address") or "auto")
    address = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdecimal() and "/" not in host:  # Ray itself would try for more than a minute
            socket.create_connection((host, int(port)), timeout=10).close()
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # otherwise only one of the runs that end in a second is reported
        import ray

        ray.init(**init)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"hydra.launcher.ray.init.address={address}: no Ray cluster answers there "
            f"({one_line(error)}); start one with: ray start --head"
        ) from None
