"""Dotted keys of configurations and their explanations. These are the comments in the YAML, for docs/KEYS.md and
`--help`.

The explanation of a key is the comment behind it, or the comment lines directly above it. In config/train.yaml, a line
that starts with `##` begins a new table.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from files.reading import read_text

# Arguments of an agent that the environment determines.
FROM_ENVIRONMENT = ("obs_dim", "obs_shape", "vector_dim", "obs_groups", "action_dim", "action_range")


def walk(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every dotted key with its value, a group before its members. A list is a value."""
    for key, value in config.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from walk(value, f"{prefix}{key}.")


def dotted(config: dict[str, Any]) -> dict[str, Any]:
    """Flattens a nested configuration to one level of dotted keys."""
    return {key: value for key, value in walk(config) if not isinstance(value, dict)}


class Key(NamedTuple):
    """One row of a table of keys."""

    name: str
    default: str
    explanation: str


class Table(NamedTuple):
    """The keys between two `##` lines, or the keys of one node of an agent."""

    title: str
    keys: list[Key]


def tables(path: Path, prefix: str = "") -> list[Table]:
    """Reads the keys of a YAML file in order: one table per `##` line, or per top-level node if it has no such line."""
    text = read_text(path, inside=0)
    lines = text.splitlines()
    titles = {number: line[2:].strip() for number, line in enumerate(lines) if line.startswith("## ")}
    title = f"{prefix}.*" if prefix else ""
    parsed = [Table(title, [])]
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    for key_node, value_node in root.value:
        above = [titles[number] for number in titles if number < key_node.start_mark.line]
        if above:
            new_title = above[-1]
        else:
            is_node = isinstance(value_node, yaml.MappingNode)
            new_title = f"{prefix}.{key_node.value}.*" if prefix and is_node else title
        if new_title != parsed[-1].title:
            parsed.append(Table(new_title, []))
        parsed[-1].keys.extend(_keys(key_node, value_node, lines, prefix))
    return [table for table in parsed if table.keys]


def _keys(key_node: yaml.Node, value_node: yaml.Node, lines: list[str], prefix: str) -> Iterator[Key]:
    """Yields the row of a key; for a group of keys, the rows of its members."""
    name = f"{prefix}.{key_node.value}" if prefix else str(key_node.value)
    if name.split(".")[-1] == "defaults":
        yield from _choices(value_node, lines, prefix)
    elif isinstance(value_node, yaml.MappingNode) and not value_node.flow_style:
        for child_key, child_value in value_node.value:
            yield from _keys(child_key, child_value, lines, name)
    else:
        # A nested key whose value is another key only connects the two, as `_partial_` does.
        is_key = isinstance(value_node, yaml.ScalarNode) and re.fullmatch(r"\$\{[\w.]+\}", value_node.value)
        if not name.endswith("._partial_") and not ("." in name and is_key):
            yield Key(name, _default(value_node, lines), _comment(key_node, value_node, lines))


def _choices(node: yaml.Node, lines: list[str], prefix: str) -> Iterator[Key]:
    """Yields the rows of a defaults list, whose entries choose a file by a key with a slash."""
    assert isinstance(node, yaml.SequenceNode)
    for entry in node.value:
        if isinstance(entry, yaml.MappingNode):
            for key_node, value_node in entry.value:
                name = "/".join([*([prefix] if prefix else []), str(key_node.value)])
                yield Key(name, _default(value_node, lines), _comment(key_node, value_node, lines))


def _default(node: yaml.Node, lines: list[str]) -> str:
    """Returns a value as it is written in the file; for an interpolation, the key that it follows."""
    start, end = node.start_mark, node.end_mark
    if isinstance(node, yaml.ScalarNode):
        text = str(node.value)
    else:
        assert start.line == end.line, f"line {start.line + 1}: a default has to fit on its line"
        text = lines[start.line][start.column : end.column]
    if match := re.fullmatch(r"\$\{([\w.]+)\}", text):
        return f"*= {match[1]}*"
    if match := re.fullmatch(r"\$\{oc\.select:([\w.]+),\s*(\S+)\}", text):
        otherwise = re.fullmatch(r"\$\{([\w.]+)\}", match[2])
        return f"*= {match[1]}*, or {f'*{otherwise[1]}*' if otherwise else match[2]}"
    return f"`{text}`"


def _comment(key_node: yaml.Node, value_node: yaml.Node, lines: list[str]) -> str:
    """Returns the comment behind a value; without one, the comment lines directly above its key."""
    end = value_node.end_mark
    behind = re.fullmatch(r"[\s}\],]*#\s*(.*)", lines[end.line][end.column :]) if end.line < len(lines) else None
    if behind and end.line == key_node.start_mark.line:
        return behind[1]
    above: list[str] = []
    for line in reversed(lines[: key_node.start_mark.line]):
        if not re.match(r"\s*#(?!#)", line):
            break
        above.insert(0, line.strip().lstrip("# "))
    return " ".join(above)


def header(path: Path) -> str:
    """Returns the comment lines at the top of a file, without Hydra's `# @package`."""
    lines = read_text(path, inside=0).splitlines()
    head = lines[: next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))]
    return " ".join(line.lstrip("# ") for line in head if not line.startswith("# @package"))
