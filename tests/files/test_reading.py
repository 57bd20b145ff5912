"""Only regular files of a sensible size are read, and only links that the user named are followed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from files.reading import checksum, open_file, read_bytes, read_csv, read_json, read_text
from files.tensors import load_plain


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A folder with a file in a subfolder; beside it is the user's folder `mine`, with a file."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/secret.txt").write_text("secret")
    (tmp_path / "given/video").mkdir(parents=True)
    (tmp_path / "given/video/1.txt").write_text("film")
    return tmp_path / "given"


def test_only_what_the_user_typed_may_be_a_link(given: Path) -> None:
    mine = given.parent / "mine"
    (given / "file.txt").symlink_to(mine / "secret.txt")
    assert read_text(given / "file.txt", inside=0) == "secret"
    for inside in (1, 2, 3):
        with pytest.raises(OSError, match="a link, and none is followed here") as refused:
            read_text(given / "file.txt", inside=inside)
        assert refused.value.filename == str(given / "file.txt")


def test_a_folder_on_the_way_counts_as_far_as_the_program_chose_it(given: Path) -> None:
    mine = given.parent / "mine"
    (given / "linked").symlink_to(mine)
    (given.parent / "named").symlink_to(given)
    assert read_text(given / "linked/secret.txt") == "secret"  # here the user named the folder
    with pytest.raises(OSError, match="a link, and none is followed here"):
        read_text(given / "linked/secret.txt", inside=2)
    assert read_text(given.parent / "named/video/1.txt", inside=2) == "film"
    with pytest.raises(OSError, match="a link, and none is followed here"):
        read_text(given.parent / "named/video/1.txt", inside=3)


def test_what_is_no_file_is_refused_and_not_waited_for(given: Path) -> None:
    os.mkfifo(given / "pipe.csv")
    for path in (given / "pipe.csv", given / "video", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a file"):
            read_bytes(path)
    with pytest.raises(FileNotFoundError) as missing:
        read_bytes(given / "video/2.txt", inside=2)
    assert missing.value.filename == str(given / "video/2.txt")


READERS: dict[str, Callable[[Path], Any]] = {
    "config.yaml": read_text,
    "finished.json": read_json,
    "eval.csv": read_csv,
    "1.mp4": read_bytes,
    "agent.pt": load_plain,
    "policy.onnx": checksum,
}


@pytest.mark.parametrize("name", READERS)
def test_a_terabyte_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 2**40)
    with pytest.raises(OSError, match=r"1,099,511,627,776 bytes, and at most [\d,]+ belong there"):
        READERS[name](tmp_path / name)
    with open_file(tmp_path / name, most_bytes=2**40):
        pass


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": Infinity}', '{"a": -1e999}', "{", "9" * 5000, "\xff"])
def test_a_json_that_no_run_writes_is_one_kind_of_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError):
        read_json(tmp_path / "a.json")


def test_a_json_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"last_return": NaN, "b": [1, 2.5, null]}')
    content = read_json(tmp_path / "a.json")
    assert np.isnan(content.pop("last_return")) and content == {"b": [1, 2.5, None]}


def test_a_csv_is_read_up_to_its_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('step,name\n1,"a\nb"\n2,\xfc\n3,c'.encode())
    assert read_csv(path) == [{"step": "1", "name": "a\nb"}, {"step": "2", "name": "ü"}]
    for data in (b"step\n\xff\n", b"step\n" + b"9" * 200_000 + b"\n"):
        path.write_bytes(data)
        with pytest.raises(ValueError):
            read_csv(path)


def test_tensors_are_read_through_the_same_door(given: Path) -> None:
    torch.save({"x": torch.ones(2)}, given.parent / "mine/x.pt")
    (given / "x.pt").symlink_to(given.parent / "mine/x.pt")
    assert load_plain(given / "x.pt", inside=0)["x"].tolist() == [1, 1]
    with pytest.raises(OSError, match="a link"):
        load_plain(given / "x.pt")
