"""benchmarks/structure.py counts named functions and measures the optimizer's depth, with and without the rehearsal."""

from pathlib import Path

import structure

SMALL_PROJECT = {
    "train.py": """
import off_policy

class Interface:
    number = [n for n in range(3)][0]

def main():
    off_policy.Agent().update()

main()
""",
    "off_policy.py": """
import adam, rehearsal

class Agent:
    def update(self):
        rehearsal.rehearse(lambda: self.compute(), 2)
        (lambda: self.compute())()

    def compute(self):
        adam.step()
""",
    "rehearsal.py": """
def rehearse(call, times):
    call() if times == 0 else rehearse(call, times - 1)
""",
    "adam.py": """
def step():
    pass
""",
    "unused.py": """
def unused():
    pass
""",
}


def test_named_functions_and_the_depth_outside_the_rehearsal(tmp_path: Path) -> None:
    for name, source in SMALL_PROJECT.items():
        (tmp_path / name).write_text(source)
    assert structure.to_the_first_update(tmp_path) == {
        "functions": 5,  # main, update, rehearse, compute, step
        "files": 4,
        "lines": sum(len(SMALL_PROJECT[name].splitlines()) for name in SMALL_PROJECT if name != "unused.py"),
        "depth": 4,  # main, update, compute, step
        "max_depth": 7,  # these four, and rehearse three times
        "modules_imported": 4,
        "modules_executed_twice": [],
    }
