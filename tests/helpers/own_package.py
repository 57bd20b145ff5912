"""The package of docs/ENVIRONMENTS.md, importable by name, also in child processes."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest

PAGE = Path(__file__).parents[2] / "docs/ENVIRONMENTS.md"
ENV = "env=my_package:Slide-v0"


@pytest.fixture
def my_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Writes the package to a folder, from which it can be imported; yields the folder."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code
    folder = tmp_path / "my_code"
    folder.mkdir()
    (folder / "my_package.py").write_text(code[1])
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("my_package", None)
    gym.registry.pop("Slide-v0", None)
