"""Reads untrusted YAML in run and sweep folders: plain values only, of limited size."""

from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from files.reading import MOST_BYTES, read_bytes
from utils import UserError

MOST_NODES, MOST_DEPTH = 50_000, 40  # a run's configuration has 200 values in 8 levels
INVALID_YAML = (yaml.scanner.ScannerError, yaml.parser.ParserError)  # libyaml's messages do not quote the file
MOVED_CLASSES = {"run.evaluator.Evaluator": "run.evaluation.evaluator.Evaluator"}  # old path in saved runs -> path now
UNREADABLE = (OmegaConfBaseException, yaml.YAMLError, ValueError, TypeError, RecursionError)


def load(path: Path, resolved: bool = False, inside: int = 1) -> Any:
    """Reads a YAML file, with its interpolations as they are written.

    The file is scanned before any object is built from it: OmegaConf writes no anchors, aliases or tags, and a few
    lines of aliases can expand to billions of values.

    Args:
        resolved: refuse interpolations; the saved configuration of a run has none.
        inside: see `files.reading.open_file`.

    Raises:
        OSError: if there is no such file.
        UserError: if it cannot be read, or has content that no run writes.
    """
    try:
        data = read_bytes(path, MOST_BYTES[".yaml"], inside)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        text = data.decode()
        _require_plain(text, path, resolved)
        config = OmegaConf.create(text)
        return _with_new_targets(OmegaConf.to_container(config)) if OmegaConf.is_config(config) else None
    except INVALID_YAML as error:
        raise UserError(f"{path}: cannot be read ({error.problem}, by line {error.problem_mark.line + 1})") from None
    except UNREADABLE as error:
        raise UserError(f"{path}: cannot be read ({type(error).__name__})") from None


def _require_plain(text: str, path: Path, resolved: bool) -> None:
    depth = nodes = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            continue
        nodes += 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > MOST_DEPTH or nodes > MOST_NODES:
            raise UserError(f"{path}: more than {MOST_NODES:,} values, or {MOST_DEPTH} levels of them, by line {line}")
        if getattr(event, "anchor", None) is not None or getattr(event, "tag", None) is not None:
            raise UserError(f"{path}: an anchor, an alias or a tag in line {line}, which no run writes")
        if resolved and isinstance(event, yaml.ScalarEvent) and "${" in event.value:
            raise UserError(f"{path}: an interpolation in line {line}; a run's settings are saved without")


def _with_new_targets(value: Any) -> Any:
    """Replaces the old paths of classes that have moved."""
    if isinstance(value, dict):
        return {
            key: MOVED_CLASSES.get(child, child)
            if key == "_target_" and isinstance(child, str)
            else _with_new_targets(child)
            for key, child in value.items()
        }
    return [_with_new_targets(child) for child in value] if isinstance(value, list) else value
