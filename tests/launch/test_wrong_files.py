"""A user's YAML files that cannot be read, and mistakes in the options of the commands other than train.py."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import evaluate
import export
import plot
from utils import resolved

FILES = {
    "a tab": (b"seed:\n\t- 1\n", r"found character '\t' that cannot start any token in "),
    "a key twice": (b"# @package _global_\nseed: 1\nseed: 2\n", "found duplicate key seed in "),
    "an anchor": (b"# @package _global_\nseed: *nope\n", "found undefined alias 'nope' in "),
    "bytes": (b"\xff\xfe\x00", "a YAML file of the configuration is not UTF-8"),
    "a tag": (b"# @package _global_\nseed: !!python/object/apply:os.getpid []\n", "could not determine a constructor"),
    "a number as a key": (b"# @package _global_\n3: 4\n", "preset=mine: it sets 3, which is no key; correct "),
    "another part's key": (
        b"# @package _global_\nreplay_buffer: {alpha: 1}\n",
        "preset=mine: it sets replay_buffer.alpha, which this run's replay_buffer does not have; choose another preset",
    ),
    "itself": (b"# @package _global_\ndefaults: [mine]\n", "has itself among its defaults"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_preset_that_cannot_be_read(
    case: str, tmp_path: Path, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = FILES[case]
    (tmp_path / "own/preset").mkdir(parents=True)
    (tmp_path / "own/preset/mine.yaml").write_bytes(content)
    assert command("--config-dir=own", "env=Pendulum-v1", "save_video=false", "preset=mine") == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and said.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize(
    ("main", "line", "message"),
    [
        (evaluate.main, "", "the following arguments are required: path"),
        (evaluate.main, "run --episodes x", "argument --episodes: invalid int value: 'x'"),
        (export.main, "run --format pickle", "argument --format: invalid choice: 'pickle'"),
        (plot.main, "run --nope", "unrecognized arguments: --nope"),
    ],
)
def test_a_mistake_in_an_option_is_one_line_without_the_usage(
    main: Callable[[], int],
    line: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["program.py", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1 and message in said


def test_links_in_a_circle_are_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("folder")
    assert resolved(tmp_path / "link") == (tmp_path / "link").resolve()
    for main in (evaluate.main, export.main):
        monkeypatch.setattr(sys, "argv", ["program.py", str(tmp_path / "loop")])
        assert main() == 2 and capsys.readouterr().err.count("\n") == 1
