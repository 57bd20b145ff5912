"""A run of a pool's worker in a process of its own: both ends of it."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
CONSOLE = "console.txt"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs `python train.py <arguments>` to its end; what it writes goes to `console.txt` in the folder.

    Args:
        environment: variables, on top of this process's.

    Raises:
        RunError: with the last line it wrote, or the signal that killed it.
    """
    from utils import RunError  # torch comes with it, which the other end is not to wait for

    with (folder / CONSOLE).open("ab") as console:
        start = console.tell()
        command = [sys.executable, str(Path(__file__).resolve()), str(os.getpid()), *arguments]
        environment = {**os.environ, **environment}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=environment)
        try:
            code = process.wait()
        except BaseException:  # this worker is to end: the run saves, within its grace_s
            process.terminate()
            process.wait()
            raise
    if code < 0:
        raise RunError(f"killed by {signal.Signals(-code).name}")
    if code:
        written = (folder / CONSOLE).read_bytes()[start:].decode(errors="replace")
        lines = [line.strip() for line in written.splitlines() if line.strip()]
        raise RunError(lines[-1].removeprefix("train.py: ") if lines else f"ended with exit code {code}")


def end_with(parent: int) -> None:
    """Asks the kernel for SIGTERM when the parent ends: a run that nobody waits for saves, and leaves its folder."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which wanted this run, has ended")


if __name__ == "__main__":
    end_with(int(sys.argv.pop(1)))
    sys.argv[0] = str(ROOT / "train.py")
    import train

    sys.exit(train.command())
