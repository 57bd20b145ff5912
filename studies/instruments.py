"""Makes the project and the modules of benchmarks/ importable by the studies: `import instruments` comes first."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

# First overrides of the studies that preset=fast is from, as it was before its noise was held and its actor averaged.
BEFORE_HELD = ("agent/exploration=none", "agent.actor_average_share=0")
