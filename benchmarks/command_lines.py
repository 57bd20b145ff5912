"""Tries wrong command lines of all four programs: each must give one line on standard error and exit code 2.

    python benchmarks/command_lines.py [--only evaluate.py]

Tries each command line in this process, in a folder with a small run and folders that are not runs; a run that would
begin counts as exit code 0. Prints one line of JSON: the number of command lines, and how many ended in a traceback,
hung, gave another exit code, printed no message or several lines, or changed a file. Standard error describes each.
"""

import argparse
import contextlib
import io
import json
import os
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("MUJOCO_GL", "disabled")

import evaluate  # noqa: E402
import export  # noqa: E402
import plot  # noqa: E402
import train  # noqa: E402
from launch import command, job  # noqa: E402

LIMIT_S = 60
LINES = Path(__file__).with_suffix(".txt")  # P stands for PENDULUM; a valid command line begins with its exit code, 0
PENDULUM = ["env=Pendulum-v1", "device=cpu", "save_video=false"]
SMALL = (
    "num_train_steps=40 num_seed_steps=20 num_eval_episodes=1 save_figure=false log_save_tb=false num_threads=1 "
    "agent.batch_size=8 agent.critic.hidden_dim=8 agent.actor.hidden_dim=8 checkpoint_frequency=20 execution=eager"
)
PRESETS = {
    "tab": b"seed:\n\t- 1\n",
    "twice": b"# @package _global_\nseed: 1\nseed: 2\n",
    "anchor": b"# @package _global_\nseed: *nope\n",
    "list": b"- 1\n- 2\n",
    "text": b"hello\n",
    "binary": b"\xff\xfe\x00\x01",
    "cycle": b"# @package _global_\nseed: ${num_envs}\nnum_envs: ${seed}\n",
    "open": b"# @package _global_\nexperiment: '${now:x'\n",
    "formula": b"# @package _global_\nenv: $\\frac{a}{$\n",
    "python": b"# @package _global_\nseed: !!python/object/apply:os.getpid []\n",
    "number": b"# @package _global_\n3: 4\n",
    "defaults": b"# @package _global_\ndefaults: [nope]\n",
    "self": b"# @package _global_\ndefaults: [self]\n",
}


class Began(BaseException):
    """A run or a sweep would have begun."""


class Hung(BaseException):
    """A command took longer than LIMIT_S."""


def prepare(folder: Path) -> None:
    """Makes what the command lines name: a run, presets, and files and folders that are not runs."""
    os.chdir(folder)
    presets, given = folder / "conf/preset", folder / "given"
    presets.mkdir(parents=True)
    for name, content in PRESETS.items():
        (presets / f"{name}.yaml").write_bytes(content)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        sys.argv = ["train.py", *PENDULUM, *shlex.split(SMALL), "hydra.run.dir=given/run", "hydra/job_logging=none"]
        assert train.main() == 0
    for name in ("empty", "notrun", "binary", "nocheckpoint"):
        (given / name).mkdir()
    (given / "notrun/config.yaml").write_text("a: [1\n")
    (given / "binary/config.yaml").write_bytes(b"\xff\xfe\x00")
    (given / "nocheckpoint/config.yaml").write_bytes((given / "run/config.yaml").read_bytes())
    (given / "file").write_text("text")
    (given / "file.pt").write_text("text")
    os.mkfifo(given / "pipe")
    (given / "loop").symlink_to("loop")


def files(folder: Path) -> dict[str, int]:
    """Returns the modification time of each file and folder by name, without films."""
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*") if "video" not in path.parts}


def attempt(main: Callable[[], int], program: str, arguments: list[str]) -> tuple[int | None, str]:
    """Runs one command.

    Returns:
        Its exit code (None if it raised an exception or hung), and what it wrote to standard error.
    """
    sys.argv = [program, *arguments]
    err = io.StringIO()
    signal.alarm(LIMIT_S)
    code: Any = None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            code = main()
        except Began:
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except Hung:
            err.write("hung\n")
        except BaseException:
            traceback.print_exc()
        finally:
            signal.alarm(0)
    return code, err.getvalue()


def faults(code: int | None, expected: int, said: str, is_changed: bool) -> Iterator[str]:
    """Yields what is wrong with how a command ended."""
    if "hung\n" in said:
        yield "hangs"
    elif code is None or "Traceback" in said:
        yield "tracebacks"
    elif code != expected:
        yield "wrong_codes"
    elif expected and said.count("\n") != 1:
        yield "long_messages"
    if expected and is_changed:
        yield "changes"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the program to try")
    only = parser.parse_args().only

    def begin(*_: Any, **__: Any) -> None:
        raise Began

    def hang(*_: Any) -> None:
        raise Hung

    signal.signal(signal.SIGALRM, hang)
    counts = Counter[str](lines=0, tracebacks=0, hangs=0, wrong_codes=0, long_messages=0, changes=0)
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for module, function in ((command, "hydra_main"), (job, "begin_run"), (job, "train")):
            setattr(module, function, begin)
        programs = {
            "train.py": train.main,
            "evaluate.py": evaluate.main,
            "export.py": export.main,
            "plot.py": plot.main,
        }
        for line in LINES.read_text(encoding="utf-8").splitlines():
            expected, program, *arguments = shlex.split(line if line.startswith("0 ") else f"2 {line}")
            if only not in program:
                continue
            arguments = [part for argument in arguments for part in (PENDULUM if argument == "P" else [argument])]
            before = files(folder)
            code, said = attempt(programs[program], program, arguments)
            found = list(faults(code, int(expected), said, files(folder) != before))
            counts.update(["lines", *found])
            if found:
                print(f"{', '.join(found)}: {line}\n  {code}: {said[-400:].strip()}", file=sys.stderr)
            os.chdir(folder)
    print(json.dumps(dict(counts) | {"seconds": round(time.monotonic() - started_s, 1)}))
    return int(sum(counts.values()) > counts["lines"])


if __name__ == "__main__":
    sys.exit(main())
