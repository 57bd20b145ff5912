"""Counts the project's code that runs until the first update has been made: `python tests/structure.py`.

Prints one JSON object: named functions that were entered, files that have one of them, lines of these files, and the
number of named functions on the deepest stack from which an optimizer steps.
"""

import inspect
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMAND = ["env=cheetah_run", "preset=cpu", "save_video=false", "eval_in_background=false"]


class Counter:
    """A profiler's hook, which prints the counts and exits when the first update returns."""

    def __init__(self, root: Path) -> None:
        self.root, self.functions, self.depth = root, set[CodeType](), 0

    def is_counted(self, code: CodeType) -> bool:
        """Whether code is a named function of the project: no module, class body, lambda or comprehension."""
        path = Path(code.co_filename)
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        return bool(is_function) and path.is_relative_to(self.root) and not path.is_relative_to(self.root / ".venv")

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in self.functions and self.is_counted(code):
            self.functions.add(code)
        if event == "call" and code.co_filename.endswith("adam.py") and "step" in code.co_name:
            caller: FrameType | None = frame
            depth = 0
            while caller is not None:
                depth += caller.f_code in self.functions
                caller = caller.f_back
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
    sys.setprofile(Counter(ROOT))
    runpy.run_path("train.py", run_name="__main__")
