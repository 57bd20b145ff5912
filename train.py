"""Trains an agent: `python train.py env=cheetah_run`.

The way of a command:
  launch/request.py    reads the command line and composes the configuration
  launch/preflight.py  checks its values by building the run's parts (run/build.py), and claims the run's folder
  run/workspace.py     adds what needs the folder: logs, evaluations, checkpoints
  run/loop.py          trains
"""

import sys

if __name__ == "__main__":
    from launch import first_check

    REQUEST = first_check.look(sys.argv[1:])  # before torch and dm_control are imported: a mistake need not wait

from launch.command import main
from launch.job import continue_run
from run.workspace import Workspace

__all__ = ["Workspace", "continue_run", "main"]

if __name__ == "__main__":
    sys.exit(main(REQUEST))
