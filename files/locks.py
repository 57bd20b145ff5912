"""Locks on open files."""

import errno

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def lock(descriptor: int) -> None:
    """Locks an open file or folder without waiting, until it is closed or the process ends.

    Raises:
        BlockingIOError: if another process holds the lock.
        OSError: if the file system or the operating system has no locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, "this system has no file locks")
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
