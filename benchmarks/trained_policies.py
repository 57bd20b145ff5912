"""The policies in policies/: what they are, in a table, and a picture of each at its task.

    python benchmarks/trained_policies.py

Writes policies/README.md and docs/img/policies.png from the files there. benchmarks/suite.py puts them there: of each
task the seed whose final return is the median.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from training import ROOT

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from envs.episodes import EVAL_STREAM, episode_seed
from export import export
from run.saving import policy_bundle, run_policy

FOLDER, FIGURE = ROOT / "policies", ROOT / "docs" / "img" / "policies.png"
MOMENT_S = 4.0  # into the episode, when most bodies are under way
COLUMNS = 7
HEAD = """# RunPolicy policies

One policy for each task of `python benchmarks/suite.py`: of three seeds the one with the median return, trained for
{steps:,} steps. Returns are means of the ten episodes of its last evaluation.

`python evaluate.py policies/{example}.pt --video out.mp4` repeats these episodes and films the first.
`seed_policy=policies/{example}.pt` lets the policy act in the first steps of a run;
`python export.py policies/{example}.pt` exports it ([docs/EXPORT.md](../docs/EXPORT.md)). The JSON beside it has the
configuration of its run.

![All policies]({figure})

| task | return |
| --- | --- |
"""


def keep(task: str, run: Path) -> None:
    """Puts the policy of a finished run into the folder."""
    export(run, "policy", output=FOLDER / f"{task}.pt")


def paths() -> list[Path]:
    return sorted(FOLDER.glob("*.pt"))


def about(path: Path) -> dict[str, Any]:
    return json.loads(policy_bundle.json_of(path).read_text(encoding="utf-8"))


def write_table() -> None:
    found = [about(path) for path in paths()]
    lines = [
        f"| [{one['task']}]({one['task']}.pt) | {one['return']['mean']:.0f} ± {one['return']['std']:.0f} |"
        for one in found
    ]
    head = HEAD.format(
        steps=max(one["step"] for one in found),
        example=found[0]["task"],
        figure=f"../{FIGURE.relative_to(ROOT)}",
    )
    (FOLDER / "README.md").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def frame(path: Path) -> np.ndarray:
    """What the policy's environment shows at MOMENT_S of the first episode of its evaluation."""
    found = run_policy.load(path, "cpu", renders=True)
    env = found.make_env(True)
    obs, _ = env.reset(seed=episode_seed(found.cfg.seed, EVAL_STREAM, found.step, 0))
    for _ in range(int(MOMENT_S / (env.unwrapped.dt * found.cfg.action_repeat))):  # type: ignore[attr-defined]
        obs, _, terminated, truncated, _ = env.step(found.actor.act(obs))
        if terminated or truncated:
            break
    image = np.asarray(env.render())
    env.close()
    return image


def draw() -> None:
    found = paths()
    rows = -(-len(found) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(1.7 * COLUMNS, 2.0 * rows), layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, path in zip(axes.flat, found, strict=False):
        axis.imshow(frame(path))
        axis.set_title(f"{path.stem}\n{about(path)['return']['mean']:.0f}", fontsize=8)
    figure.savefig(FIGURE, dpi=90)
    plt.close(figure)


def main() -> None:
    if not paths():
        sys.exit(f"{FOLDER.relative_to(ROOT)}/ is empty; benchmarks/suite.py fills it")
    draw()
    write_table()
    print(f"{len(paths())} policies: policies/README.md, {FIGURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
