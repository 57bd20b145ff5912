"""Refuses links in a run's folder."""

import os
import stat
from pathlib import Path

from utils import UserError

TOOLS_WITH_LINKS = ("wandb", ".submitit")  # folders of tools that link within the run's folder
WANDB_LOG = "debug-core.log"  # a link to a log in the user's cache, which nobody writes through the run's folder


def refuse_links(folder: Path) -> None:
    """Checks a folder that will be read or written as a run's.

    A link in it could redirect a write, or the truncation of a log, to any of the user's files. This does not protect
    against a person who adds a link during the run; that person can write into the folder anyway.

    Raises:
        UserError: for a symbolic link, for a file with a second hard link outside of the checkpoints (which are never
            written in place), and for anything else that is neither a file nor a folder.
    """
    for name, folders, files in os.walk(folder):
        inside = Path(name).relative_to(folder).parts
        of_tool = any(part in TOOLS_WITH_LINKS for part in inside)
        for path in (Path(name, entry) for entry in [*folders, *files]):
            try:
                status = path.lstat()
            except OSError:  # deleted since, such as a replaced checkpoint
                continue
            if stat.S_ISLNK(status.st_mode):
                of_wandb = "wandb" in inside and path.name == WANDB_LOG
                if of_wandb or (of_tool and path.resolve().is_relative_to(folder.resolve())):
                    continue
                raise UserError(f"{path}: a link; in a run's folder none is followed, so put the file itself there")
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise UserError(f"{path}: neither a file nor a folder, which no run writes")
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and not of_tool and "checkpoints" not in inside:
                raise UserError(f"{path}: a file with a second name (a hard link), which would change too; copy it")
