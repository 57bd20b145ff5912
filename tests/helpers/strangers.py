"""A run's folder as a stranger could hand it over, and a check that the commands refuse it."""

import os
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probes
import pytest
from runs import RUN

import evaluate
import train

Change = Callable[[Path], None]


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
def copied(small_run: Path, mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the small run, beside a pickle and a module that would create `mark`, and a file to be left alone."""
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil(mark)))
    (tmp_path / "victim.csv").write_text("precious\n" * 999)
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(small_run, tmp_path / "run")


def copy_of(path: Path, folder: Path) -> Path:
    """Copies a file and the JSON beside it, for a test to change; returns the file's copy."""
    return [Path(shutil.copy(path.with_name(name), folder)) for name in (f"{path.name}.json", path.name)][-1]


def outside(folder: Path) -> dict[str, Any]:
    """Returns everything outside the run's folder."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in folder.parent.rglob("*")
        if folder not in (path, *path.parents) and "__pycache__" not in path.parts
    }


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plays: bool) -> str:
    """Asserts that evaluate.py and train.py refuse the folder; returns train.py's message, one line.

    Args:
        plays: whether evaluating may work, as the fault concerns only training.
    """
    before = outside(folder)
    said = ""
    for program, arguments in (
        (evaluate, ["evaluate.py", str(folder), "--no-video"]),
        (train, ["train.py", f"resume={folder}"]),
    ):
        monkeypatch.setattr(sys, "argv", arguments)
        capsys.readouterr()
        code = program.main()  # type: ignore[attr-defined]
        said = capsys.readouterr().err
        if not (plays and program is evaluate):
            assert code == 2, said
            assert said.count("\n") == 1 and "Traceback" not in said
        assert outside(folder) == before
    return said


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)
)
