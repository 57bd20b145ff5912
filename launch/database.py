"""The database of a study, in the sweep's folder."""

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import optuna
from optuna.storages import RDBStorage

from utils import UserError

NAME = "tuning"  # of the study in the database
FILE = "study.db"

optuna.logging.set_verbosity(optuna.logging.WARNING)  # the sweep reports trials itself


@contextmanager
def opened(folder: Path) -> Iterator[RDBStorage]:
    """Opens the database until the end of the block; creates it if it does not exist."""
    # By its path, because a URL cannot contain every character. Another process may be reading it.
    connect = partial(sqlite3.connect, folder / FILE, timeout=60)
    storage = RDBStorage("sqlite:///by_path", engine_kwargs={"creator": connect})
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def require_readable(folder: Path) -> None:
    """Raises UserError for a database that Optuna cannot continue."""
    path = folder / FILE
    if not path.exists():
        return
    try:
        with opened(folder):
            pass
    except RuntimeError:  # Optuna's, for the tables of another version
        raise UserError(
            f"{path}: another version of Optuna wrote this study; choose another folder, or convert it for good with: "
            f"optuna storage upgrade --storage {shlex.quote(f'sqlite:///{path}')}"
        ) from None
    except Exception as error:  # SQLAlchemy's or SQLite's, for a damaged file
        raise UserError(f"{path}: the study cannot be read ({type(error).__name__})") from None
