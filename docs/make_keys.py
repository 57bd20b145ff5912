"""Writes docs/KEYS.md from the configuration: `python docs/make_keys.py`; with `--check`, exits 1 if the page is stale.

settings/keys.py reads the comments.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from settings.keys import Table, header, tables  # noqa: E402

PAGE = ROOT / "docs" / "KEYS.md"
TRAIN, AGENT = ROOT / "config" / "train.yaml", ROOT / "config" / "agent" / "sac.yaml"
HIDDEN = "hydra.job"  # how Hydra names and logs a job
PRESETS = ROOT / "config" / "preset"

HEAD = """\
# Keys

`python docs/make_keys.py` makes this page from [config/train.yaml](../config/train.yaml) and
[config/agent/sac.yaml](../config/agent/sac.yaml).

`python train.py --cfg job` prints every key with the value that a run would use. A default such as *= num_train_steps*
follows that key. *Step*, *decision*, *transition* and *update* are defined in [WORDS.md](WORDS.md).
"""
AGENT_HEAD = """\
These are the keys of `agent=sac`. The [other agents](../config/agent) name only what they change or add
([AGENTS.md](AGENTS.md)). A key with a slash chooses a file: `agent/temperature=fixed`.
"""
PRESET_HEAD = """\
`preset=[cpu,tune]` merges two; where both set a key, the later one wins. What you set on the command line wins over
both.

One of your own is `config/preset/mine.yaml`, or `my_config/preset/mine.yaml` with `--config-dir my_config`:

```yaml
# @package _global_
defaults:
  - override /agent: crossq
  - _self_
num_train_steps: 100_000
agent: {batch_size: 128}
```
"""


def main() -> int:
    """Writes or checks the page; returns the exit code."""
    parser = argparse.ArgumentParser(description="Writes docs/KEYS.md from the configuration.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print("docs/KEYS.md is stale; run: python docs/make_keys.py", file=sys.stderr)
        return 1
    return 0


def page() -> str:
    """Returns the page for the present configuration."""
    parts = [HEAD]
    parts += [_section(table) for table in tables(TRAIN)]
    parts += ["## The agent\n", AGENT_HEAD]
    parts += [_section(table, "###") for table in tables(AGENT, "agent")]
    parts += ["## Presets\n", PRESET_HEAD]
    parts += ["| preset | |\n| --- | --- |"]
    for path in sorted(PRESETS.glob("*.yaml")):
        first_sentence = re.split(r"(?<=[.?!]) ", header(path), maxsplit=1)[0]
        parts += [f"| [{path.stem}](../config/preset/{path.name}) | {_cell(first_sentence)} |"]
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(table: Table, level: str = "##") -> str:
    keys = (key for key in table.keys if not key.name.startswith(HIDDEN))
    rows = [f"| `{key.name}` | {_cell(key.default)} | {_cell(key.explanation)} |" for key in keys]
    return "\n".join([f"{level} {table.title}\n", "| key | default | |", "| --- | --- | --- |", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main())
