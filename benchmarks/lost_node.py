"""A sweep on a Ray cluster of two nodes of which one is killed midway: every run has to finish all the same.

    python benchmarks/lost_node.py --cpus 1 preset=cpu env=cartpole_swingup,walker_walk seed=1,2,3 \\
        hydra.sweep.dir=exp/on_ray
    python benchmarks/lost_node.py --against exp/undisturbed ...

Both nodes are on this machine, with so many cores each; the others of train.py's arguments are passed on. As soon as a
run on the second node has got past a checkpoint, everything of that node gets SIGKILL at once, as when its power goes.
With --against, each run is then compared, byte by byte, with the run of the same name in an undisturbed sweep.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from ray.cluster_utils import Cluster  # noqa: E402
from same_run import result, same  # noqa: E402

from run.saving import checkpoint  # noqa: E402
from run.saving import folder as run_folder  # noqa: E402


def sweep_and_kill(arguments: list[str], folder: Path, cpus: int) -> tuple[int, list[str]]:
    """Runs the sweep, and kills the second node.

    Args:
        arguments: of train.py, without the launcher and the folder.
        folder: the sweep's.
        cpus: of each node.

    Returns:
        The sweep's exit code, and the names of the runs that were under way on the node.
    """
    noticing = {
        "health_check_initial_delay_ms": 500,
        "health_check_period_ms": 500,
    }  # a loss, in seconds, not in twenty
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, "_system_config": noticing})
    try:
        node = cluster.add_node(num_cpus=cpus)
        raylet = node.all_processes["raylet"][0].process.pid
        ray_is = ["hydra/launcher=cluster", f"hydra.launcher.ray.init.address={cluster.address}"]
        command = [sys.executable, str(ROOT / "train.py"), "-m", *ray_is, *arguments, f"hydra.sweep.dir={folder}"]
        sweep = subprocess.Popen(command)
        while not (cut := under_way(folder, raylet)):
            if sweep.poll() is not None:
                raise SystemExit("the sweep was over before a run on the second node got past a checkpoint")
            time.sleep(0.02)
        for process in [psutil.Process(raylet), *psutil.Process(raylet).children(recursive=True)]:
            process.send_signal(signal.SIGKILL)
        # In one piece, its end of line too: the sweep, which sees its node die, writes to the same terminal.
        print(f"killed the second node, with {', '.join(cut)}\n", end="", flush=True)
        return sweep.wait(), cut
    finally:
        cluster.shutdown()


def under_way(folder: Path, raylet: int) -> list[str]:
    """The runs of a node, if one of them has got past a checkpoint that its start did not write."""
    there = {process.pid for process in psutil.Process(raylet).children(recursive=True)}
    runs, past = [], False
    for lock in folder.glob("*/.lock"):
        who = lock.read_text(encoding="utf-8").split()
        if who and int(who[0]) in there and run_folder.finished(lock.parent) is None:
            runs.append(lock.parent.name)
            past |= len(checkpoint.newest_first(lock.parent)) > 1
    return runs if past else []


def differences(folder: Path, undisturbed: Path) -> list[str]:
    """What is not the same to the last bit: run and part."""
    found = []
    for other in sorted(path.parent for path in undisturbed.glob("*/train.csv")):
        if run_folder.finished(folder / other.name) is None:
            found.append(f"{other.name} is not finished")
            continue
        expected, got = result(other), result(folder / other.name)
        found += [f"{other.name}: {part} differs" for part in expected if not same(expected[part], got[part])]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=1, help="of each node")
    parser.add_argument("--against", type=Path, help="a finished sweep of the same runs")
    known, arguments = parser.parse_known_args()
    dirs = [argument.partition("=")[2] for argument in arguments if argument.startswith("hydra.sweep.dir=")]
    if len(dirs) != 1:
        parser.error("hydra.sweep.dir=<folder> is needed")
    folder = Path(dirs[0]).resolve()
    code, _ = sweep_and_kill([a for a in arguments if not a.startswith("hydra.sweep.dir=")], folder, known.cpus)
    unfinished = [str(path.parent) for path in folder.glob("*/.hydra") if run_folder.finished(path.parent) is None]
    wrong = [f"{name} is not finished" for name in unfinished]
    if known.against:
        wrong += differences(folder, known.against)
        print("\n".join(wrong) or "every byte is that of the undisturbed runs")
    sys.exit(code or bool(wrong))


if __name__ == "__main__":
    main()
