"""Measures how much code runs between the command line and the first update, and how much there is to read.

    python benchmarks/structure.py [--checkout FOLDER]

Runs `python train.py env=cheetah_run preset=cpu` under a profiler hook until the first call of `agent.update` returns,
and prints one JSON object. For this project's code it gives:

    functions   named functions that were entered; class bodies, lambdas and comprehensions are not named functions
    files       files with at least one of these functions
    lines       lines of these files
    depth       named functions on the deepest stack from which an optimizer steps, without the rehearsal, whose
                update is undone (agent/execution/rehearsal.py)
    max_depth   the same with the rehearsal
    modules_imported, modules_executed_twice

and for the whole checkout: files and lines of product code, annotations with `Any`, words of pages.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path

NOT_PRODUCT = ("tests", "benchmarks", "studies", "docs")
COMMAND = ["env=cheetah_run", "preset=cpu", "num_seed_steps=1000", "save_video=false", "eval_in_background=false"]
HOOK = """
import inspect, json, os, runpy, sys
from collections import Counter
root, result, *arguments = sys.argv[1:]
root = os.path.join(os.path.realpath(root), "")
outside = tuple(os.path.join(root, name) for name in (".venv", "exp"))
functions, bodies, depths, all_depths = set(), Counter(), [], []

def is_ours(code):
    return code.co_filename.startswith(root) and not code.co_filename.startswith(outside)

def is_named_function(code):
    # The body of a class is compiled without fast locals; "<lambda>" and "<listcomp>" are no names.
    return code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")

def stack(frame):
    codes = []
    while frame is not None:
        if is_ours(frame.f_code) and is_named_function(frame.f_code):
            codes.append(frame.f_code)
        frame = frame.f_back
    return codes

def hook(frame, event, _):
    code = frame.f_code
    if event == "call" and is_ours(code):
        if code.co_name == "<module>":
            bodies[code.co_filename] += 1
        elif is_named_function(code):
            functions.add((code.co_filename, code.co_firstlineno, code.co_name))
            if code.co_filename.endswith("adam.py") and "step" in code.co_name:
                codes = stack(frame)
                all_depths.append(len(codes))
                if not any(caller.co_filename.endswith("rehearsal.py") for caller in codes):
                    depths.append(len(codes))
    elif event == "return" and code.co_name == "update" and code.co_filename.endswith("off_policy.py"):
        sys.setprofile(None)
        files = sorted({name for name, *_ in functions})
        figures = {
            "functions": len(functions),
            "files": len(files),
            "lines": sum(len(open(name, encoding="utf-8").readlines()) for name in files),
            "depth": max(depths, default=0),
            "max_depth": max(all_depths, default=0),
            "modules_imported": len(bodies),
            "modules_executed_twice": sorted(os.path.relpath(name, root) for name, n in bodies.items() if n > 1),
        }
        with open(result, "w") as file:
            json.dump(figures, file)
        os._exit(0)

os.chdir(root)
sys.path.insert(0, root)
sys.argv = ["train.py", *arguments]
sys.setprofile(hook)
runpy.run_path(os.path.join(root, "train.py"), run_name="__main__")
"""


def to_the_first_update(checkout: Path) -> dict[str, object]:
    """Counts the code that is entered between the command line and the end of the first update."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        arguments = [str(checkout), str(result), *COMMAND, f"hydra.run.dir={folder}/run"]
        subprocess.run([sys.executable, "-c", HOOK, *arguments], check=True, stdout=subprocess.DEVNULL)
        return dict(json.loads(result.read_text(encoding="utf-8")))


def sizes(checkout: Path) -> dict[str, int]:
    """Counts files and lines of product code, annotations with `Any`, and words of pages."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=checkout, check=True, capture_output=True, text=True)
    names = [name for name in listed.stdout.split("\0") if name and (checkout / name).exists()]
    product = [name for name in names if name.endswith(".py") and name.split("/")[0] not in NOT_PRODUCT]
    sources = [(checkout / name).read_text(encoding="utf-8") for name in product]
    pages = [(checkout / name).read_text(encoding="utf-8") for name in names if name.endswith(".md")]
    return {
        "product_files": len(product),
        "product_lines": sum(len(source.splitlines()) for source in sources),
        "annotations_with_any": sum(
            isinstance(node, ast.Name) and node.id == "Any"
            for source in sources
            for node in ast.walk(ast.parse(source))
        ),
        "words_of_pages": sum(len(page.split()) for page in pages),
        "words_of_readme": len((checkout / "README.md").read_text(encoding="utf-8").split()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, default=Path(__file__).resolve().parents[1])
    checkout = parser.parse_args().checkout.resolve()
    print(json.dumps({"to_the_first_update": to_the_first_update(checkout), "sizes": sizes(checkout)}, indent=1))


if __name__ == "__main__":
    main()
