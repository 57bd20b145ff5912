"""A small run to be copied, and what a stranger could put into it."""

import os
import shutil
from pathlib import Path

import probes
import pytest
from runs import RUN


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unfinished run of 60 steps, with two checkpoints and one evaluation, to be copied."""
    folder = tmp_path_factory.mktemp("run") / "run"
    probes.train(folder, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=60", "eval_frequency=60")
    (folder / "finished.json").unlink()  # so something is left to do
    return folder


class Evil:
    """Unpickling it creates the folder `mark`, as a pickle can run any code."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that importing evil_module would create; this module, which a stranger may name, can be found."""
    mark = tmp_path / "MARK"
    (tmp_path / "evil_module.py").write_text(f"import os\nos.mkdir({str(mark)!r})\nclass Thing: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    return mark


@pytest.fixture
def copied(small_run: Path, mark: Path, tmp_path: Path) -> Path:
    """A copy of the small run."""
    return shutil.copytree(small_run, tmp_path / "run")


def copy_of(path: Path, folder: Path) -> Path:
    """Copies a file and the JSON beside it, for a test to change; returns the file's copy."""
    return [Path(shutil.copy(path.with_name(name), folder)) for name in (f"{path.name}.json", path.name)][-1]
