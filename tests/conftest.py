import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from envs import opengl as chosen_opengl

for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):  # common in CI; they would colour tables that tests read
    os.environ.pop(name, None)
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime's telemetry leaves files in folders that tests list
# A script's `make test &` begins with SIGINT ignored, and the commands under test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
HAS_OPENGL = chosen_opengl.can_render()

import probes  # noqa: E402, F401  registers the probe environments
from runs import SILENT  # noqa: E402
from strangers import copied, mark, small_run  # noqa: E402, F401  fixtures

import train  # noqa: E402

torch.set_num_threads(1)
# The same examples everywhere; `--hypothesis-profile=default` tries random ones.
hypothesis.settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("fixed")


@pytest.fixture
def opengl() -> None:
    """Skips tests that render where OpenGL is missing; in CI, fails them, as the set-up has to install it."""
    if not HAS_OPENGL:
        assert not os.environ.get("CI"), "no OpenGL in CI: .ci/run has to install it"
        pytest.skip("no OpenGL here: apt install libegl1 libgl1")


@pytest.fixture(autouse=True)
def signals_restored() -> Iterator[None]:
    """Restores what a run that a signal stopped leaves as it is, as its process is to end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def float64() -> Iterator[None]:
    """Makes agents that are built in the test compute in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A function that runs train.py with arguments, in `tmp_path` but in this process, and returns the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")  # main adds to it

    def call(*arguments: str) -> int:
        is_hydras = not any(text.startswith(("resume=", "--")) and text != "resume=auto" for text in arguments)
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments, *(SILENT if is_hydras else ())])
        return train.main()

    return call


def pytest_collection_finish() -> None:
    gc.freeze()  # existing objects stay, so the garbage collector need not visit them


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """Skips fsync in this process, as only a crash of the machine loses unsynced data; child processes still sync."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(0)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends with one line that says how many tests were skipped and why; -rs would take a line for each place."""
    if reporter := config.pluginmanager.get_plugin("terminalreporter"):  # xdist's workers have none
        skips = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reporter.stats.get("skipped", ()))
        print("skipped:", "; ".join(f"{count} ({reason})" for reason, count in skips.most_common()) or "none")
