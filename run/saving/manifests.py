"""What a checkpoint's manifest has to be. It is signed against accidents, not against a stranger, who can sign too."""

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from replay.on_disk import Segment
from utils import require_count

RINGS = ("rows", "frames")
SEGMENT = {field.name for field in fields(Segment)}
PRELOADED = "preloaded"  # the rows that a run began with: a key of the manifest, and their folder


def signature(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def fault(manifest: dict[str, Any], path: Path) -> str | None:
    """What is wrong with a manifest that is signed, as anybody's can be; None if it is as one is written."""
    identity, parts = manifest.get("identity"), manifest.get("parts")
    segments = [manifest.get("segments"), manifest.get(PRELOADED, [])]
    if not isinstance(identity, dict) or not isinstance(parts, dict) or not all(isinstance(s, list) for s in segments):
        return "identity, parts and segments are not as they are written"
    if not all(isinstance(digest, str) for digest in parts.values()):
        return "a part's checksum is no text"
    try:
        if path.name != f"step_{require_count(manifest.get('step'), 'step')}":
            return f"it is of step {manifest['step']}"
        return next(filter(None, map(_fault_of_rows, segments)), None)
    except ValueError as error:
        return str(error)


def _fault_of_rows(segments: list[Any]) -> str | None:
    """What is wrong with a list of segments, of which those of a ring follow each other."""
    stops: dict[str, int] = {}
    for segment in segments:
        if not isinstance(segment, dict) or segment.keys() | {"ring"} != SEGMENT:
            return "a segment is not as one is written"
        ring = segment.get("ring", "rows")
        if ring not in RINGS or not isinstance(segment["sha256"], str):
            return "a segment is not as one is written"
        before = stops.get(ring)
        start, stop = require_count(segment["start"], "start"), require_count(segment["stop"], "stop")
        if start >= stop or before not in (None, start):
            return f"a segment from {start} to {stop} cannot follow one to {before}"
        stops[ring] = stop
    return None
