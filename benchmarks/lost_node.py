"""Runs a sweep on a Ray cluster of two nodes and kills one of them; every run must still finish.

    python benchmarks/lost_node.py --cpus 1 preset=cpu env=cartpole_swingup,walker_walk seed=1,2,3 \\
        hydra.sweep.dir=exp/on_ray
    python benchmarks/lost_node.py --against exp/undisturbed ...

Both nodes are on this machine, with --cpus cores each; the other arguments go to train.py. As soon as a run on the
second node has two checkpoints, all processes of that node get SIGKILL, as in a power failure. With --against, each run
is then compared, byte by byte, with the run of the same name in an undisturbed sweep.
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
from same_bytes import same  # noqa: E402
from same_run import result  # noqa: E402

from run.saving import checkpoint  # noqa: E402
from run.saving import folder as run_folder  # noqa: E402


def sweep_and_kill(arguments: list[str], folder: Path, cpus: int) -> tuple[int, list[str]]:
    """Runs the sweep and kills the second node.

    Args:
        arguments: arguments of train.py, without the launcher and the folder.
        folder: folder of the sweep.
        cpus: cores of each node.

    Returns:
        The exit code of the sweep, and the names of the unfinished runs that were on the killed node.
    """
    # With these, Ray notices a lost node within seconds; by default it takes twenty.
    health_checks = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, "_system_config": health_checks})
    try:
        node = cluster.add_node(num_cpus=cpus)
        raylet = node.all_processes["raylet"][0].process.pid
        launcher = ["hydra/launcher=cluster", f"hydra.launcher.ray.init.address={cluster.address}"]
        command = [sys.executable, str(ROOT / "train.py"), "-m", *launcher, *arguments, f"hydra.sweep.dir={folder}"]
        sweep = subprocess.Popen(command)
        while not (killed := runs_past_a_checkpoint(folder, raylet)):
            if sweep.poll() is not None:
                raise SystemExit("the sweep ended before a run on the second node had written a checkpoint")
            time.sleep(0.02)
        for process in [psutil.Process(raylet), *psutil.Process(raylet).children(recursive=True)]:
            process.send_signal(signal.SIGKILL)
        # Print the line and its end in one piece: the sweep writes to the same terminal.
        print(f"killed the second node, with {', '.join(killed)}\n", end="", flush=True)
        return sweep.wait(), killed
    finally:
        cluster.shutdown()


def runs_past_a_checkpoint(folder: Path, raylet: int) -> list[str]:
    """Returns a node's unfinished runs once one of them has a checkpoint besides its first; until then, none."""
    on_node = {process.pid for process in psutil.Process(raylet).children(recursive=True)}
    runs, past = [], False
    for lock in folder.glob("*/.lock"):
        owner = lock.read_text(encoding="utf-8").split()
        if owner and int(owner[0]) in on_node and run_folder.finished(lock.parent) is None:
            runs.append(lock.parent.name)
            past |= len(checkpoint.newest_first(lock.parent)) > 1
    return runs if past else []


def differences(folder: Path, undisturbed: Path) -> list[str]:
    """Returns a line for each unfinished run, and for each part of a run that differs in any bit."""
    lines = []
    for other in sorted(path.parent for path in undisturbed.glob("*/train.csv")):
        if run_folder.finished(folder / other.name) is None:
            lines.append(f"{other.name} is not finished")
            continue
        expected, got = result(other), result(folder / other.name)
        lines += [f"{other.name}: {part} differs" for part in expected if not same(expected[part], got[part])]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=1, help="cores of each node")
    parser.add_argument("--against", type=Path, help="a finished sweep of the same runs")
    known, arguments = parser.parse_known_args()
    dirs = [argument.partition("=")[2] for argument in arguments if argument.startswith("hydra.sweep.dir=")]
    if len(dirs) != 1:
        parser.error("give hydra.sweep.dir=<folder> once")
    folder = Path(dirs[0]).resolve()
    code, _ = sweep_and_kill([a for a in arguments if not a.startswith("hydra.sweep.dir=")], folder, known.cpus)
    unfinished = [str(path.parent) for path in folder.glob("*/.hydra") if run_folder.finished(path.parent) is None]
    wrong = [f"{name} is not finished" for name in unfinished]
    if known.against:
        wrong += differences(folder, known.against)
    if wrong or known.against:
        print("\n".join(wrong) or "every byte equals that of the undisturbed runs")
    sys.exit(code or bool(wrong))


if __name__ == "__main__":
    main()
