"""Writes docs/KEYS.md from the comments of the YAML files; with `--check`, exits 1 if the page is stale.

The comment behind a key, or above it, explains it. In config/train.yaml, a line that starts with `##` begins a table.
"""

import re
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "KEYS.md"
HEAD = """\
# Keys

`python docs/make_keys.py` makes this page from [config/](../config). `python train.py --cfg job` prints every key with
the value that a run would use. A default such as *= num_train_steps* follows that key. *Step*, *decision*, *transition*
and *update* are defined in [WORDS.md](WORDS.md).
"""
AGENT_HEAD = """\
## The agent

The keys of `agent=sac`. [Other agents](../config/agent) name what they change or add ([AGENTS.md](AGENTS.md)). A key
with a slash chooses a file: `agent/temperature=fixed`.
"""
PRESET_HEAD = """\
## Presets

`preset=[cpu,tune]` merges two; where both set a key, the later one wins, and the command line wins over both. One of
your own is a file like these: `config/preset/mine.yaml`, or `my_config/preset/mine.yaml` with `--config-dir my_config`.

| preset | |
| --- | --- |"""


class Key(NamedTuple):
    name: str
    default: str
    explanation: str


def read_tables(path: Path, prefix: str = "") -> dict[str, list[Key]]:
    """Reads a YAML file's keys in order by table: one per `##` line, or per top-level node if it has no such line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    root: Any = yaml.compose("\n".join(lines))
    tables: dict[str, list[Key]] = {}
    for key_node, value_node in root.value:
        above = [line[2:].strip() for line in lines[: key_node.start_mark.line] if line.startswith("## ")]
        node = f".{key_node.value}" if value_node.id == "mapping" else ""
        title = above[-1] if above else f"{prefix}{node}.*"
        if rows := list(_read_keys(key_node, value_node, lines, prefix)):
            tables.setdefault(title, []).extend(rows)
    return tables


def _read_keys(key_node: yaml.Node, value_node: yaml.Node, lines: list[str], prefix: str) -> Iterator[Key]:
    """Yields the row of a key; for a group of keys, the rows of its members."""
    name = f"{prefix}.{key_node.value}" if prefix else str(key_node.value)
    if isinstance(value_node, yaml.MappingNode) and not value_node.flow_style:
        for child_key, child_value in value_node.value:
            yield from _read_keys(child_key, child_value, lines, name)
    elif name.split(".")[-1] == "defaults":
        for group, choice in (pair for entry in value_node.value if entry.id == "mapping" for pair in entry.value):
            name = f"{prefix}/{group.value}" if prefix else str(group.value)
            yield Key(name, f"`{choice.value}`", _read_comment(group, choice, lines))
    else:
        start, end = value_node.start_mark, value_node.end_mark
        text = value_node.value if value_node.id == "scalar" else lines[start.line][start.column : end.column]
        # A nested key whose value is another key only connects the two, as `_partial_` does.
        if not name.endswith("._partial_") and not ("." in name and re.fullmatch(r"\$\{[\w.]+\}", text)):
            default = re.sub(r"^\$\{oc\.select:([\w.]+),\s*(\S+)\}$", r"*\1*, or \2", text)
            default = re.sub(r"(^|or )\$\{([\w.]+)\}$", r"\1*\2*", default)
            default = f"`{text}`" if default == text else f"*= {default[1:]}"
            yield Key(name, default, _read_comment(key_node, value_node, lines))


def _read_comment(key_node: yaml.Node, value_node: yaml.Node, lines: list[str]) -> str:
    """Returns the comment behind a value; without one, the comment lines directly above its key."""
    line, end = key_node.start_mark.line, value_node.end_mark
    behind = re.fullmatch(r"[\s}\],]*#\s*(.*)", lines[end.line][end.column :]) if end.line == line else None
    above: list[str] = []
    while line and re.match(r"\s*#(?!#)", lines[line - 1]):
        line -= 1
        above.insert(0, lines[line].strip().lstrip("# "))
    return behind[1] if behind else " ".join(above)


def read_header(path: Path) -> str:
    """Returns the first sentence of the comment at the top of a file, after Hydra's `# @package`."""
    comment = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    text = " ".join(line.lstrip("# ") for line in comment if not line.startswith("# @package"))
    return re.split(r"(?<=[.?!]) ", text, maxsplit=1)[0]


def make_page() -> str:
    parts = [HEAD]
    for level, name, prefix in (("##", "train", ""), ("###", "agent/sac", "agent")):
        parts += [AGENT_HEAD] if prefix else []
        for title, keys in read_tables(ROOT / "config" / f"{name}.yaml", prefix).items():
            rows = [_make_row(f"`{key}`", *cells) for key, *cells in keys if not key.startswith("hydra.job")]
            parts += [f"{level} {title}", "", "| key | default | |", "| --- | --- | --- |", *rows, ""]
    parts += [PRESET_HEAD]
    for path in sorted(ROOT.glob("config/preset/*.yaml")):
        parts += [_make_row(f"[{path.stem}](../config/preset/{path.name})", read_header(path))]
    return "\n".join(parts) + "\n"


def _make_row(*cells: str) -> str:
    escaped = [cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells]
    return f"| {' | '.join(escaped)} |"


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(make_page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != make_page():
        sys.exit("docs/KEYS.md is stale; run: python docs/make_keys.py")
