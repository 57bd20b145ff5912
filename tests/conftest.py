import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import video

HAS_OPENGL = video.choose_opengl(wanted=True)

import probes  # noqa: E402, F401  registers the probe environments

import envs  # noqa: E402, F401  imports dm_control, which settles the choice for the whole session

torch.set_num_threads(1)


@pytest.fixture
def opengl() -> None:
    """For tests that render. In CI a missing OpenGL is a failure of the set-up, not a reason to skip."""
    if not HAS_OPENGL:
        assert not os.environ.get("CI"), "no OpenGL in CI: .ci/run has to install it"
        pytest.skip("no OpenGL here: apt install libosmesa6")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium, driven by Selenium, for tests of pages. Missing in CI, it is a failure of the set-up."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for path in map(shutil.which, names) if path), None)
    driver = shutil.which("chromedriver")
    if not (program and driver):
        assert not os.environ.get("CI"), "no Chromium in CI: .ci/run has to install it"
        pytest.skip("no Chromium here: apt install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for switch in ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"):
        options.add_argument(f"--{switch}")
    for switch in ("disable-background-networking", "disable-component-update", "disable-dev-shm-usage"):
        options.add_argument(f"--{switch}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(0)
