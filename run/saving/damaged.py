"""What a resumed run may continue without if it is damaged: `resume=<folder> resume_without=replay_buffer,logs`.

The key applies to one command and is not saved with the run, so a later loss is not accepted silently. Undamaged parts
are never left out.
"""

import shlex
from collections.abc import Collection
from pathlib import Path

from files.writing import rename, sync
from utils import UserError

KEY = "resume_without"
REPLAY_BUFFER, LOGS = "replay_buffer", "logs"
CHOICES = (REPLAY_BUFFER, LOGS)


def names(text: str) -> tuple[str, ...]:
    """Parses the key's value: `replay_buffer,logs`, with or without brackets; refuses anything else."""
    chosen = tuple(name.strip() for name in text.removeprefix("[").removesuffix("]").split(","))
    if not set(chosen) <= set(CHOICES):
        raise UserError(f"{KEY}={text}: {', '.join(CHOICES)} or both ({','.join(CHOICES)}) goes here")
    return chosen


def command(folder: Path, name: str, without: Collection[str]) -> str:
    """Returns the arguments, quoted for a shell, that resume a run without `name` and the parts in `without`."""
    chosen = ",".join(choice for choice in CHOICES if choice == name or choice in without)
    return f"{shlex.quote(f'resume={folder}')} {KEY}={chosen}"


def not_needed(name: str) -> str:
    """Returns the line that is printed if nothing of `name` is damaged."""
    return f"{KEY}={name}: not needed, as nothing of it is damaged"


def set_aside(path: Path) -> Path:
    """Renames a file or a folder to `<name>.lost`, or `<name>.lost_2`, `_3`, … if that exists; returns the new path."""
    attempt, aside = 1, path.with_name(f"{path.name}.lost")
    while aside.exists():
        attempt += 1
        aside = path.with_name(f"{path.name}.lost_{attempt}")
    rename(path, aside.name)
    sync(path.parent)
    return aside
