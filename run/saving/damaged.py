"""What a run can go on without, where it is damaged: `resume=<folder> resume_without=replay_buffer,logs`.

The key belongs to the command and not to the run, whose settings never have it: what was lost once is not to be left
out for ever. Nor is a part left out that is whole.
"""

import shlex
from collections.abc import Collection
from pathlib import Path

from utils import UserError, sync

KEY = "resume_without"
REPLAY_BUFFER, LOGS = "replay_buffer", "logs"
PARTS = (REPLAY_BUFFER, LOGS)


def names(text: str) -> tuple[str, ...]:
    """The parts in `replay_buffer,logs`, with or without brackets.

    Raises:
        UserError: for anything else.
    """
    found = tuple(name.strip() for name in text.removeprefix("[").removesuffix("]").split(","))
    if not set(found) <= set(PARTS):
        raise UserError(f"{KEY}={text}: {', '.join(PARTS)} or both ({','.join(PARTS)}) goes here")
    return found


def offer(folder: Path, part: str, without: Collection[str]) -> str:
    """The arguments, as a shell takes them, to go on without a part and without those that are left out already."""
    parts = ",".join(name for name in PARTS if name == part or name in without)
    return f"{shlex.quote(f'resume={folder}')} {KEY}={parts}"


def not_needed(part: str) -> str:
    """What is said of a part that may be left out and is whole."""
    return f"{KEY}={part}: not needed, as nothing of it is damaged"


def set_aside(path: Path) -> Path:
    """Renames a file or a folder to `<name>.lost`, with `_2`, `_3`, … behind it where that is taken."""
    attempt, aside = 1, path.with_name(f"{path.name}.lost")
    while aside.exists():
        attempt += 1
        aside = path.with_name(f"{path.name}.lost_{attempt}")
    path.rename(aside)
    sync(path.parent)
    return aside
