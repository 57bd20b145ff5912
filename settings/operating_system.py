"""What differs between operating systems: CPUs, locks, signals, processes, memory.

Linux has all of it, macOS most, Windows too little to train on. Nothing else in the project asks the system for these:
where one is missing, the function here does without it or says so.
"""

import contextlib
import ctypes
import errno
import multiprocessing
import os
import platform
import signal
import sys
from functools import cache
from multiprocessing.context import BaseContext
from pathlib import Path

from utils import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_CPUINFO = Path("/proc/cpuinfo")


def require_posix() -> None:
    """Raises UserError on Windows, with the way out."""
    if sys.platform == "win32":
        raise UserError("Windows is not supported by itself; run the same command in WSL 2 (wsl --install)")


def usable_cpus() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS does not pin processes to cores


def lock(descriptor: int) -> None:
    """Takes the lock of an open file without waiting; it is released when the file is closed or the process ends.

    Raises:
        BlockingIOError: if another process has it.
        OSError: if the file system, or the system, has no locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, "this system has no file locks")
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def signals(*names: str) -> tuple[signal.Signals, ...]:
    """Those of the named signals that this system has."""
    return tuple(signal.Signals[name] for name in names if hasattr(signal, name))


def ignore_stop_signals() -> None:
    """For a process beside the training: a terminal's Ctrl-C and a cluster's warning reach it too, but are meant for
    the training process, which still needs its answers and ends it."""
    for number in signals("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
        signal.signal(number, signal.SIG_IGN)


def process_context(preload: list[str]) -> BaseContext:
    """How processes are started: never by a fork, since this process has threads and may have a GPU.

    Args:
        preload: modules that a fork server imports once, so that each process need not.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    multiprocessing.set_forkserver_preload(preload)
    return multiprocessing.get_context("forkserver")


def lower_priority(by: int) -> None:
    """Lets other processes go first; see `nice`."""
    if hasattr(os, "nice"):
        os.nice(by)


def terminate_with_parent() -> None:
    """Has this process receive SIGTERM when its parent ends. Only Linux can; elsewhere it runs on."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without prctl
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def keep_freed_memory() -> None:
    """Asks glibc to keep freed memory for the next allocation instead of handing it back to the kernel.

    An update at 1024 units frees and takes 50 MB; given back, each page of it faults again (5 % of the update's time).
    With another C library nothing happens.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**30)
        libc.mallopt(_M_MMAP_THRESHOLD, 2**25)  # the most it accepts


@cache
def processor_vendor() -> str:
    """The processor's vendor as Linux names it, such as GenuineIntel; "" where that is not known."""
    if not _CPUINFO.exists():
        return ""
    lines = (line.partition(":") for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == "vendor_id"), "")


def available_bytes() -> int:
    """The machine's free memory, or what a container's limit leaves of it."""
    import psutil  # not before: a command line is checked without it

    available = psutil.virtual_memory().available
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((folder / name).read_text(encoding="utf-8")) for name in ("memory.max", "memory.current"))
        counts = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
        return max(0, min(available, limit - used + int(counts["inactive_file"])))  # cached files give way
    except (OSError, ValueError, KeyError):  # no container, or one with no limit ("max")
        return available
