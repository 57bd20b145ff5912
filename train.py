"""Trains an agent: `python train.py env=cheetah_run`.

The way of a command: `launch/first_check.py` composes its settings and finds mistakes in keys and names,
`launch/preflight.py` checks values and machine and claims the folder, `run/workspace.py` builds the parts of a run
(`run/build.py`), and `run/loop.py` trains.
"""

import sys

if __name__ == "__main__":
    from launch import first_check

    ASKED = first_check.look(sys.argv[1:])  # before torch and dm_control are imported: a mistake need not wait for them

from launch.command import continue_run, main
from run.workspace import Workspace

__all__ = ["Workspace", "continue_run", "main"]

if __name__ == "__main__":
    sys.exit(main(ASKED))
