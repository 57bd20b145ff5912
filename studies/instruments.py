"""Makes the project and the modules of benchmarks/ importable by the studies, which import this module first."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
