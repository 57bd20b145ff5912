"""Records a profiler's trace of ten updates: `make profile ARGS="agent.batch_size=256"`.

Takes train.py's overrides. Prints the operations that take the most time, and writes
exp/profile/<host>.<time>.pt.trace.json for https://ui.perfetto.dev or TensorBoard's profiler plug-in
(`tensorboard --logdir exp/profile`).
"""

import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler
from update_worker import ours

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "exp" / "profile"


def main() -> None:
    update = ours(sys.argv[1:])
    for _ in range(20):
        update()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with profile(activities=activities, on_trace_ready=tensorboard_trace_handler(str(TARGET))) as profiler:
        for _ in range(10):
            update()
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=20, max_name_column_width=40))
    print(max(TARGET.glob("*.json"), key=lambda path: path.stat().st_mtime))


if __name__ == "__main__":
    main()
