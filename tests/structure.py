"""Counts our code that runs until the first update: functions, files, their lines, and the deepest stack to Adam."""

import inspect
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMAND = ["env=cheetah_run", "preset=cpu", "save_video=false", "eval_in_background=false"]


def is_counted(code: CodeType) -> bool:
    """Whether code is a named function of the project: no module, class body, lambda or comprehension."""
    path = Path(code.co_filename)
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    return bool(is_function) and path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv")


class Counter:
    """A profiler's hook, which prints the counts and exits when the first update returns."""

    functions: set[CodeType] = set()  # noqa: RUF012
    depth = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in self.functions and is_counted(code):
            self.functions.add(code)
        if event == "call" and code.co_filename.endswith("adam.py") and "step" in code.co_name:
            depth = sum(caller.f_code in self.functions for caller, _ in traceback.walk_stack(frame))
            self.depth = max(self.depth, depth)
        elif event == "return" and code.co_name == "update" and code.co_filename.endswith("off_policy.py"):
            sys.setprofile(None)
            files = {code.co_filename for code in self.functions}
            lines = sum(len(Path(name).read_text(encoding="utf-8").splitlines()) for name in files)
            counts = {"functions": len(self.functions), "files": len(files), "lines": lines, "depth": self.depth}
            print(json.dumps(counts), flush=True)
            os._exit(0)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    sys.argv = ["train.py", *COMMAND, f"hydra.run.dir={tempfile.mkdtemp()}/run"]
    sys.setprofile(Counter())
    runpy.run_path("train.py", run_name="__main__")
