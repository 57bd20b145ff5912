"""What `--help` and `--tasks` print."""

import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

from envs.names import SUITE_TASKS, list_gymnasium_ids
from settings import compose
from settings.compose import CONFIG_DIR

COMMANDS = """\
Trains an agent.

  python train.py key=value ...                       one run: python train.py env=walker_walk seed=3
  python train.py -m key=value,value ...              a sweep: one run for each value, or each pair of them
  python train.py resume=<folder> [key=value ...]     continues the run in a folder
  python train.py resume=auto hydra.run.dir=<folder>  continues what is in the folder, or begins it
  python train.py --cfg job key=value ...             prints every key with the value that a run would have
  python train.py --tasks                             lists the tasks
  python train.py --config-dir=<folder> ...           adds a folder with agent/ or preset/ files of your own
  python train.py --hydra-help                        Hydra's own options
  python evaluate.py <folder>                         plays and films what a run has learnt

Exit codes: 0 finished, 2 a mistake in the command, 3 a fault, 75 saved after a signal, 130 saved after Ctrl-C.
"""
NAME_WIDTH, WIDTH = 34, 120


def help_text(folders: list[Path]) -> str:
    """Returns the commands, and the explained keys by group; lists the agents and presets in `folders`."""
    page = runpy.run_path(str(CONFIG_DIR.parent / "docs" / "make_keys.py"))
    read_tables, read_header, Key = page["read_tables"], page["read_header"], page["Key"]  # noqa: N806
    sections = read_tables(CONFIG_DIR / "train.yaml")
    for title, keys in read_tables(CONFIG_DIR / "agent" / "sac.yaml", "agent").items():
        sections[f"The agent: {title} (of agent=sac)"] = keys
    for group in ("agent", "preset"):
        paths = compose.choices(group, folders)
        sections[f"{group}=..."] = [Key(path.stem, "", read_header(path).rstrip(".")) for path in paths]
    return "\n".join([COMMANDS, *(_section(title, keys) for title, keys in sections.items())])


def _section(title: str, keys: list[Any]) -> str:
    lines = [title]
    for key in keys:
        default = f" [{re.sub('[`*]', '', key.default)}]" if key.default else ""
        text = textwrap.wrap(key.explanation + default, WIDTH - NAME_WIDTH, break_on_hyphens=False) or [""]
        name = f"  {key.name}"
        if len(name) >= NAME_WIDTH:
            lines.append(name)
            name = ""
        lines += [f"{name:{NAME_WIDTH}}{text[0]}", *(" " * NAME_WIDTH + line for line in text[1:])]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def tasks_text() -> str:
    """Returns a list of the suite's tasks, and of the ids that Gymnasium lists."""
    named, ids = (
        textwrap.fill(", ".join(names), WIDTH, break_on_hyphens=False, break_long_words=False)
        for names in (SUITE_TASKS, list_gymnasium_ids())
    )
    return (
        f"env=<task> of the DeepMind Control Suite:\n{named}\n\n"
        f"env=<id> of Gymnasium; those with discrete actions need agent=sac_discrete:\n{ids}\n\n"
        "env=<package>:<id> of a package that registers its own\n"
    )
