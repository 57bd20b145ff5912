"""What `--help` and `--tasks` print."""

import textwrap

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


def format_help() -> str:
    """Returns the commands, the agents and presets, and config/train.yaml, which explains every key."""
    groups = []
    for group in ("agent", "preset", "replay_buffer"):
        names = sorted(path.stem for path in (CONFIG_DIR / group).glob("[!_]*.yaml"))
        groups.append(f"{group}= {', '.join(names)}")
    return "\n".join([COMMANDS, *groups, "", (CONFIG_DIR / "train.yaml").read_text(encoding="utf-8")])


def format_tasks() -> str:
    """Returns the suite's tasks, and the ids that Gymnasium lists."""
    from settings import env_ids

    suite, ids = (
        textwrap.fill(", ".join(listed), 120) for listed in (env_ids.SUITE_TASKS, env_ids.list_gymnasium_ids())
    )
    return (
        f"env=<task> of the DeepMind Control Suite:\n{suite}\n\n"
        f"env=<id> of Gymnasium; those with discrete actions need agent=sac_discrete:\n{ids}\n\n"
        "env=<package>:<id> of a package that registers its own"
    )
