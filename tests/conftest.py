import os
import sys
from pathlib import Path

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


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(0)
