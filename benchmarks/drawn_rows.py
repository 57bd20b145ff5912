"""Measures the extra cost of an update that draws rows by priority or by age: `python benchmarks/drawn_rows.py`.

Times an update of SAC: 256 units, batches of 256, fp32, torch's own number of threads, 100 000 rows. The replay buffers
take turns. Writes benchmarks/results/drawn_rows.json.
"""

import json
from statistics import median

from machine import circumstances
from speed import ROOT, in_turns, ratio, updates_of
from update_worker import REPLAY_BUFFERS

RESULT = ROOT / "benchmarks" / "results" / "drawn_rows.json"
ROUNDS, UPDATES = 20, 100


def main() -> None:
    times = in_turns({name: updates_of(name, 256, "fp32") for name in ("ours", *REPLAY_BUFFERS)}, ROUNDS, UPDATES)
    figures = {
        "update_ms": {name: round(1000 * median(seconds), 3) for name, seconds in times.items()},
        "ratio_to_uniform": {name: ratio(times, name, "ours") for name in REPLAY_BUFFERS},
    }
    RESULT.write_text(json.dumps(circumstances() | figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
