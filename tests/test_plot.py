"""plot.py, called as a user does."""

import csv
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import probes
import pytest
from made_runs import make_run
from matplotlib.figure import Figure
from runs import ROOT, run_command

import plot
from study import figures, runs, style, summary


def test_a_runs_curves_are_drawn_at_its_end(tmp_path: Path) -> None:
    probes.train(tmp_path, "agent=sac_v", "env=ProbeTimeLimit-v0", "agent.value.hidden_dim=16", "save_figure=true")
    picture = iio.imread(tmp_path / "curves.png")
    assert picture.shape[0] > 500 and picture.shape[1] > 1000  # two rows of panels
    assert picture[..., :3].std() > 10
    assert (tmp_path / "curves.svg").read_text().startswith("<?xml")
    columns = runs.read(tmp_path / "train.csv")
    assert {"actor_loss", "critic_loss", "value_loss", "alpha_loss", "alpha_value"} <= set(columns)
    steps, values = columns["critic_loss"]
    assert steps[0] > 100 and len(steps) == len(values)  # rows before the first update are blank, not zero


def test_a_broken_matplotlib_does_not_change_how_a_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(folder: Path) -> Any:
        raise ValueError("'Qt4Agg' is not a valid value")

    monkeypatch.setattr(plot, "draw_run", broken)
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", "num_train_steps=60", "save_figure=true")
    assert "No curves.png: ValueError: 'Qt4Agg' is not a valid value\n" in capsys.readouterr().err
    assert (tmp_path / "finished.json").exists()


def test_an_empty_folder_still_draws(tmp_path: Path) -> None:
    assert all(path.exists() for path in plot.draw_run(tmp_path))


def study(folder: Path, with_references: bool = False) -> summary.Study:
    return summary.summarise(runs.find([str(folder)]), with_references)


def curves(figure: Figure, panel: int) -> list[list[tuple[float, float]]]:
    """The points of each line of a panel, without gaps."""
    return [
        [(x, y) for x, y in line.get_xydata().tolist() if y == y]  # type: ignore[union-attr]
        for line in figure.axes[panel].lines
    ]


def test_a_study_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for env in ("cheetah_run", "walker_walk"):
        for seed, value in ((1, 100.0), (2, 300.0)):
            make_run(tmp_path / f"sweep/{env}-{seed}", [(50_000, 0.0), (100_000, value)], env=env, seed=seed)
    assert plot.main([str(tmp_path / "sweep"), "--reference"]) == 0
    names = ["curves.png", "curves.svg", "overall.png", "overall.svg", "profiles.png", "profiles.svg"]
    names += ["curves.csv", "table.md", "profiles.csv"]
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "sweep/study" / name) for name in names]
    written = tmp_path / "sweep/study"
    assert "| cheetah_run | sac | 2 | 200 [100, 300] |" in (written / "table.md").read_text()
    with (written / "curves.csv").open(newline="") as file:
        last = list(csv.DictReader(file))[-1]
    assert (last["task"], last["step"], last["value"], last["runs"]) == ("IQM of 2 tasks", "100000", "200", "4")
    assert iio.imread(written / "curves.png").std() > 10
    before = {name: (written / name).read_bytes() for name in names}
    assert plot.main([str(tmp_path / "sweep"), "--reference"]) == 0  # its own output does not count as a run
    assert before == {name: (written / name).read_bytes() for name in names}


def test_a_home_that_cannot_be_written_is_no_news(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [(10_000, 1.0)])
    drawn = run_command(tmp_path, "run", program="plot.py")
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert drawn.stdout.splitlines() == [str(tmp_path / "run/curves.png"), str(tmp_path / "run/curves.svg")]


def test_one_run_is_drawn_where_it_lies_or_where_asked(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [(10_000, 1.0)], length=60_000)
    assert plot.main([str(tmp_path / "run")]) == 0
    assert plot.main([str(tmp_path / "run"), "--out", str(tmp_path / "new/place")]) == 0
    for folder in ("run", "new/place"):
        assert (tmp_path / folder / "curves.png").exists()


def test_means_unfinished_runs_and_published_curves_are_drawn(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [(40_000, 10.0), (80_000, 20.0), (120_000, 30.0)])
    make_run(tmp_path / "b", [(40_000, 30.0), (80_000, 40.0)], seed=2, length=120_000)
    figure = figures.draw_tasks(study(tmp_path, with_references=True))
    theirs, simba, whole, fewer, unfinished, end = curves(figure, 0)
    assert max(x for x, _ in theirs + simba) == 120_000
    assert whole == [(40_000, 20), (80_000, 30)] and fewer == [(80_000, 30), (120_000, 30)]
    assert unfinished == [(40_000, 30), (80_000, 40)] and end == [(80_000, 40)]
    assert figure.axes[0].lines[-1].get_marker() == "x"
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [
        "sac",
        "published: pytorch_sac",
        "published: SAC in SimBa",
        "not all runs got there",
        "an unfinished run's end",
    ]
    assert figure.axes[0].get_ylim()[0] == 0 == figure.axes[0].get_xlim()[0]
    assert figure.axes[0].get_xlabel() == "environment steps" and figure.axes[0].get_ylabel() == "return"


def test_a_task_with_nothing_to_show_says_so(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [(10_000, 1.0)])
    make_run(tmp_path / "b", [], env="walker_walk")
    assert figures.draw_tasks(study(tmp_path)).axes[1].texts[0].get_text() == "no evaluation yet"


def test_eighteen_labels_look_different() -> None:
    styles = style.of_labels([str(number) for number in range(18)])
    assert len(set(styles.values())) == 18


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["none"], "none: no such folder"),
        (["empty"], "empty: no run in it"),
        ([""], "'': no such folder"),
        (["run", "--out", "file"], "--out=.*file"),
        (["a" * 300], "a: (File name too long|no such folder)"),
        (["run", "other"], "--out: name a folder; .* has its own study/"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "__init__.py").touch()
    for name in ("run", "other"):
        make_run(tmp_path / name, [(1, 1.0)])
    before = sorted(tmp_path.rglob("*"))
    assert plot.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("plot.py: ") and error.count("\n") == 1
    assert re.search(reason, error)
    assert sorted(tmp_path.rglob("*")) == before


def test_figures_are_written_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    run = make_run(tmp_path / "run", [(1, 1.0)])
    for name in ("curves.png", "curves.svg", "report.html"):
        (run / name).symlink_to(tmp_path / "mine")
    assert plot.main([str(run), "--report"]) == 0
    assert (tmp_path / "mine").read_text() == "precious" and not (run / "curves.png").is_symlink()


def test_a_studys_folder_is_no_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        make_run(tmp_path / f"given/{seed}", [(1, 1.0)], seed=seed)
    (tmp_path / "mine").mkdir()
    (tmp_path / "given/study").symlink_to(tmp_path / "mine")
    assert plot.main([str(tmp_path / "given")]) == 2
    assert re.fullmatch(r"plot\.py: .*a link, and none is followed.*\n", capsys.readouterr().err)
    assert not list((tmp_path / "mine").iterdir())
    assert plot.main([str(tmp_path / "given"), "--out", str(tmp_path / "given/study")]) == 0  # the user named it


def replaced(name: str, how: str) -> Callable[[Path], None]:
    """Returns a change that replaces a run's file by a pipe or by a link to a file of the user's."""

    def replace(run: Path) -> None:
        path = run / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path) if how == "pipe" else path.symlink_to(run.parent / "secret")

    return replace


def linked_videos(run: Path) -> None:
    (run.parent / "videos").mkdir()
    (run.parent / "videos/9.mp4").write_text("step,secret\n")
    (run / "video").symlink_to(run.parent / "videos")


GIVEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a linked log": (replaced("eval.csv", "link"), "eval.csv: cannot be read (a link"),
    "a pipe as a log": (replaced("eval.csv", "pipe"), "eval.csv: cannot be read (not a file)"),
    "a linked video": (replaced("video/9.mp4", "link"), "9.mp4: cannot be read (a link"),
    "linked videos": (linked_videos, "9.mp4: cannot be read (a link"),
    "a pipe as a video": (replaced("video/9.mp4", "pipe"), "9.mp4: cannot be read (not a file)"),
    "linked settings": (replaced("config.yaml", "link"), "config.yaml: cannot be read (a link"),
    "settings that are a pipe": (replaced("config.yaml", "pipe"), "cannot be read (not a file)"),
    "a log that is no text": (lambda run: (run / "eval.csv").write_bytes(b"step\n\xff\n"), "not a log of a run ("),
    "a cell without end": (lambda run: (run / "eval.csv").write_text("step\n" + "9" * 200_000 + "\n"), "not a log of"),
    "a terabyte": (lambda run: os.truncate(run / "eval.csv", 2**40), "eval.csv: cannot be read (1,099,511,627,776"),
}


@pytest.mark.parametrize("case", GIVEN)
def test_nothing_outside_a_given_run_is_read_or_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    (tmp_path / "secret").write_text("step,secret\n1,hidden\n")
    for seed in (1, 2):
        run = make_run(tmp_path / f"runs/{seed}", [(1, 1.0)], seed=seed)
    (run.parent / "secret").write_text("step,secret\n1,hidden\n")
    change, reason = GIVEN[case]
    change(run)
    assert plot.main([str(run.parent), "--report", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("plot.py: ") and error.count("\n") == 1 and reason in error and "hidden" not in error
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not [path for path in written if b"hidden" in path.read_bytes() or path.name == "report.html"]


KILLED = """
import os, signal, sys
from PIL import Image
def save(image, file, *_, **__):
    file = open(file, "wb") if isinstance(file, (str, os.PathLike)) else file
    file.write(b"half"), file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
Image.Image.save = save
import plot
plot.main([sys.argv[1]])
"""


def test_killed_it_leaves_the_old_figures_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [(1, 1.0)])
    assert plot.main([str(run)]) == 0
    whole = (run / "curves.png").read_bytes()
    command = [sys.executable, "-c", KILLED, str(run)]
    killed = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    assert killed.returncode == -signal.SIGKILL and (run / "curves.png").read_bytes() == whole
    assert plot.main([str(run)]) == 0
    assert sorted(path.name for path in run.iterdir()) == ["config.yaml", "curves.png", "curves.svg", "eval.csv"]


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    for name in (r"$\frac{a}{$", "$_$"):
        folder = make_run(tmp_path / str(len(name)), [(10_000, 1.0)], env=name)
        assert plot.main([str(folder), "--report"]) == 0
    assert plot.main([str(tmp_path), "--report"]) == 0


def test_a_study_that_has_not_begun_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), [], seed=seed)
    assert plot.main([str(tmp_path)]) == 2
    assert "no evaluation in any of the 2 runs yet" in capsys.readouterr().err
