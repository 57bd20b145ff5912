"""Training works without the features that some operating systems lack."""

import os
import sys
from pathlib import Path

import probes
import pytest

from settings import operating_system


@pytest.mark.thorough
def test_a_run_trains_and_evaluates_on_what_macos_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(operating_system.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(operating_system.ctypes, "CDLL", None)  # no calls of prctl or mallopt
    monkeypatch.setattr(operating_system, "_CPUINFO", Path("/nowhere"))
    operating_system.of_processor.cache_clear()
    assert operating_system.usable_cpus() == (os.cpu_count() or 1)
    assert operating_system.of_processor("vendor_id") == ""
    overrides = ("eval_in_background=true", "num_train_steps=60", "eval_frequency=30", "agent.batch_size=4")
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *overrides)
    assert len((tmp_path / "eval.csv").read_text().splitlines()) == 3
