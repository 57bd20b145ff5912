"""What differs between operating systems: CPUs, signals, processes, memory. On macOS some of it does nothing."""

import ctypes
import multiprocessing
import os
import platform
import signal
import threading
from functools import cache
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_CPUINFO = Path("/proc/cpuinfo")
CORES_SHARED = "RUNS_SHARE_THE_CORES"  # environment variable in a sweep that trains several runs at a time


def usable_cpus() -> int:
    """Returns the number of cores that this process may use; macOS does not pin processes to cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def begin_helper() -> None:
    """Ignores Ctrl-C and a cluster's warnings in a helper process, whose results the training process still needs; the
    helper exits when that process ends, however it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory for the next allocation. An update with 1024 hidden units frees and allocates
    50 MB; if these went back to the kernel, page faults would take 5 % of its time."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**30)
        libc.mallopt(_M_MMAP_THRESHOLD, 2**25)  # the most it accepts


@cache
def of_processor(name: str) -> str:
    """Returns a field of Linux's /proc/cpuinfo, such as `vendor_id`; "" on another system."""
    if not _CPUINFO.exists():
        return ""
    lines = (line.partition(":") for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")
