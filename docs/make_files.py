"""Writes docs/FILES.md from docstrings: `python docs/make_files.py`; with `--check`, exits 1 if the page is stale."""

import argparse
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "FILES.md"
AGENTS = ROOT / "config" / "agent"
FOLDERS = {  # in the order of the page; the sentence of a folder without an __init__.py
    "": "The entry points, and modules that forks of pytorch_sac import by these names.",
    "files": "",
    "agent": "",
    "settings": "",
    "envs": "",
    "dmc2gym": "",
    "physics": "",
    "replay": "",
    "run": "",
    "launch": "",
    "hydra_plugins": "The package in which Hydra looks for sweepers.",
    "sinks": "",
    "study": "",
    "examples": "The algorithm on one page, the framework as a library, and a policy without torch.",
}
TASKS = ROOT / "physics" / "tasks"  # one file a domain, which its name says
WORDS_OF_A_STATEMENT = 4
HEAD = """\
# Files

`python docs/make_files.py` makes this page from the docstrings. [CONTRIBUTING.md](../CONTRIBUTING.md) says which folder
may import which. `tests/` mirrors these folders; `benchmarks/` and [studies](../studies/README.md) measure.
"""


def main() -> int:
    """Writes or checks the page; returns the exit code."""
    parser = argparse.ArgumentParser(description="Writes docs/FILES.md from the docstrings.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif not is_current(text):
        print("docs/FILES.md is stale; run: python docs/make_files.py", file=sys.stderr)
        return 1
    return 0


def is_current(text: str) -> bool:
    """Whether the page is this text; a new algorithm's file may be missing, so that its author edits no page."""
    written = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    configs = "\n".join(path.read_text(encoding="utf-8") for path in AGENTS.glob("*.yaml"))
    targets = re.findall(r"^_target_: ([\w.]+)\.\w+$", configs, re.MULTILINE)
    algorithms = tuple(f"- [{name.rpartition('.')[2]}.py](" for name in targets)
    return written == [line for line in text.splitlines() if line in written or not line.startswith(algorithms)]


def page() -> str:
    """Returns the page for the present files."""
    rooms: dict[Path, str] = {}
    for name, sentence in FOLDERS.items():
        folder = ROOT / name
        nested = sorted({path.parent for path in folder.rglob("*.py")}) if name else []
        rooms |= {folder: sentence} | {
            room: "" for room in nested if room not in (folder, TASKS) and "__pycache__" not in room.parts
        }
    return "\n".join([HEAD, *(room_text(room, sentence) for room, sentence in rooms.items())])


def room_text(folder: Path, sentence: str) -> str:
    """Returns the section of one folder: its own sentence, then one line per file."""
    name = folder.relative_to(ROOT).as_posix()
    package = folder / "__init__.py"
    files = [path for path in sorted(folder.glob("*.py")) if path != package]
    lines = [f"## {'The root' if folder == ROOT else name + '/'}\n", sentence or first_sentence(package), ""]
    lines += [f"- [{file.name}](../{file.relative_to(ROOT).as_posix()}): {first_sentence(file)}" for file in files]
    return "\n".join(lines) + "\n"


def first_sentence(path: Path) -> str:
    """Returns the first sentence of a module's docstring in one line, without a list or command after a colon."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.?!]) ", paragraph, maxsplit=1)[0]
    statement, colon, _ = sentence.partition(": ")
    if colon and len(statement.split()) >= WORDS_OF_A_STATEMENT:  # "Critics: …" is a title, and says too little
        sentence = statement + "."
    return re.sub(r"<(?=(?:[^`]*`[^`]*`)*[^`]*$)", "&lt;", sentence)  # outside of code only


if __name__ == "__main__":
    sys.exit(main())
