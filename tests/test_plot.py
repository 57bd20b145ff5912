"""plot.py, called as a user does."""

import csv
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import probes
import pytest
from made_runs import make_run
from matplotlib.figure import Figure

import plot
from study import figures, runs, summary


def test_a_runs_curves_are_drawn_at_its_end(tmp_path: Path) -> None:
    overrides = ("agent.value.hidden_dim=16", "save_figure=true", "num_train_steps=300")
    probes.train(tmp_path, "agent=sac_v", "env=ProbeTimeLimit-v0", *overrides)
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

    monkeypatch.setattr(figures, "draw_run", broken)
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", "num_train_steps=60", "save_figure=true")
    assert "No curves.png: ValueError: 'Qt4Agg' is not a valid value\n" in capsys.readouterr().err
    assert (tmp_path / "finished.json").exists()


def curves(figure: Figure, panel: int) -> list[list[tuple[float, float]]]:
    """The points of each line of a panel, without gaps."""
    return [
        [(x, y) for x, y in line.get_xydata().tolist() if y == y]  # type: ignore[union-attr]
        for line in figure.axes[panel].lines
    ]


def test_a_study_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for env in ("cheetah_run", "walker_walk"):
        for seed, value in ((1, 100.0), (2, 300.0)):
            run = make_run(tmp_path / f"sweep/{env}-{seed}", [(50_000, 0.0), (100_000, value)], env=env, seed=seed)
            (run / "train.csv").write_text("step,steps_per_second\n100000,100\n")
    plot.main([str(tmp_path / "sweep"), "--reference"])
    names = [f"{name}.{end}" for name in ("curves", "minutes", "overall", "profiles") for end in ("png", "svg")]
    names += ["curves.csv", "table.md"]
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "sweep/study" / name) for name in names]
    written = tmp_path / "sweep/study"
    assert "| cheetah_run | sac | 2 | 200 [100, 300] |" in (written / "table.md").read_text()
    with (written / "curves.csv").open(newline="") as file:
        last = [row for row in csv.DictReader(file) if row["task"] == "IQM of 2 tasks"][-1]
    assert (last["step"], last["value"], last["runs"]) == ("100000", "200", "4")
    assert iio.imread(written / "curves.png").std() > 10
    assert len(runs.find([str(tmp_path / "sweep")])) == 4  # its own output does not count as a run


def test_one_run_is_drawn_where_it_lies_or_where_asked_and_a_name_is_no_formula(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [(10_000, 1.0)], length=60_000, env=r"$\frac{a}{$")
    plot.main([str(tmp_path / "run")])
    plot.main([str(tmp_path / "run"), "--out", str(tmp_path / "new/place")])
    for folder in ("run", "new/place"):
        assert (tmp_path / folder / "curves.png").exists()


def test_means_unfinished_runs_and_published_curves_are_drawn(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [(40_000, 10.0), (80_000, 20.0), (120_000, 30.0)])
    make_run(tmp_path / "b", [(40_000, 30.0), (80_000, 40.0)], seed=2, length=120_000)
    make_run(tmp_path / "c", [(10, -1300.0)], env="Pendulum-v1")
    make_run(tmp_path / "d", [], env="walker_walk")
    study = summary.summarise(runs.find([str(tmp_path)]), with_references=True)
    figure = figures.make_figure(figures.make_panels(study)["curves"], figures.make_handles(study, "curves"))
    pendulum, cheetah, walker = figure.axes[:3]
    theirs, simba, whole, fewer, unfinished, end = curves(figure, 1)
    assert max(x for x, _ in theirs + simba) == 120_000
    assert whole == [(40_000, 20), (80_000, 30)] and fewer == [(80_000, 30), (120_000, 30)]
    assert unfinished == [(40_000, 30), (80_000, 40)] and end == [(80_000, 40)]
    assert cheetah.lines[-1].get_marker() == "x"
    labels = ["sac", "published: pytorch_sac", "published: SAC in SimBa"]
    labels += ["not all runs got there", "an unfinished run's end"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == labels
    assert cheetah.get_ylim()[0] == 0 == cheetah.get_xlim()[0] and pendulum.get_ylim()[0] < -1000
    assert cheetah.get_xlabel() == "environment steps" and cheetah.get_ylabel() == "return"
    assert walker.texts[0].get_text() == "no evaluation yet"
