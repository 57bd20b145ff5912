"""Writes policies/README.md, policies/returns.csv and docs/img/policies.png from the policies in policies/.

    python benchmarks/trained_policies.py

benchmarks/suite.py saves these policies: for each task, that of the seed with the median final return, or the nearest.
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
MOMENT_S = 4.0  # the moment of the episode that the picture shows
COLUMNS = 7
HEAD = """# Trained policies

One policy for each task of `python benchmarks/suite.py`, trained for {steps} steps: the median of three seeds, or
the nearest whose run was kept. Returns are means over the fifty episodes of its last evaluation
([returns.csv](returns.csv)).

`python evaluate.py policies/{example}.pt --video out.mp4` repeats these episodes and films the first.
`python export.py policies/{example}.pt` exports the policy ([docs/EXPORT.md](../docs/EXPORT.md)), and
`seed_policy=policies/{example}.pt` lets it act in the first steps of a run. The JSON file of the same name has the
configuration of its run.

![All policies]({figure})
"""


def keep(task: str, run: Path) -> None:
    """Saves the policy of a finished run in policies/."""
    export(run, "policy", output=FOLDER / f"{task}.pt")


def paths() -> list[Path]:
    return sorted(FOLDER.glob("*.pt"))


def about(path: Path) -> dict[str, Any]:
    return json.loads(policy_bundle.json_of(path).read_text(encoding="utf-8"))


def write_table() -> None:
    policies = [about(path) for path in paths()]
    lines = [f"{info['task']},{info['return']['mean']:.0f},{info['return']['std']:.0f}" for info in policies]
    head = HEAD.format(
        steps=f"{max(info['step'] for info in policies):,}".replace(",", " "),
        example=policies[0]["task"],
        figure=f"../{FIGURE.relative_to(ROOT)}",
    )
    (FOLDER / "README.md").write_text(head, encoding="utf-8")
    (FOLDER / "returns.csv").write_text("\n".join(["task,mean,std", *lines]) + "\n", encoding="utf-8")


def frame(path: Path) -> np.ndarray:
    """Renders the environment at MOMENT_S in the first episode of the policy's last evaluation."""
    policy = run_policy.load(path, "cpu", renders=True)
    env = policy.make_env(True)
    obs, _ = env.reset(seed=episode_seed(policy.cfg.seed, EVAL_STREAM, policy.step, 0))
    for _ in range(int(MOMENT_S / (env.unwrapped.dt * policy.cfg.action_repeat))):  # type: ignore[attr-defined]
        obs, _, terminated, truncated, _ = env.step(policy.actor.act(obs))
        if terminated or truncated:
            break
    image = np.asarray(env.render())
    env.close()
    return image


def draw() -> None:
    files = paths()
    rows = -(-len(files) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(1.7 * COLUMNS, 2.0 * rows), layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, path in zip(axes.flat, files, strict=False):
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
