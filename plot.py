"""Draws runs as figures, tables and a report: `python plot.py exp/<day>/<sweep> --reference --report`."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from study import figures, report, runs, summary, tables
from utils import OneLineParser, UserError, write_atomic


def main(argv: Sequence[str] | None = None) -> None:
    parser = OneLineParser(prog="plot.py", description="Draws the curves of one run, or a study of several runs.")
    parser.add_argument("paths", nargs="+", help="run folders, sweeps, folders of them, or patterns in quotes")
    parser.add_argument("--reference", action="store_true", help="add published results")
    parser.add_argument("--report", action="store_true", help="also write report.html: curves, tables, videos")
    parser.add_argument("--out", type=Path, help="output folder (default: the run folder, or study/ beside the runs)")
    args = parser.parse_args(argv)
    try:
        for path in draw(args.paths, args.reference, args.report, args.out):
            print(path)
    except UserError as error:
        parser.error(error)


def draw(paths: Sequence[str], with_references: bool, with_report: bool, out: Path | None) -> list[Path]:
    """Draws the runs in `paths` and returns the files written."""
    study = summary.summarise(runs.find(paths), with_references)
    for note in study.notes:
        print(note, file=sys.stderr)
    folders = [run.folder for run in study.runs]
    folder = out or (folders[0] if len(folders) == 1 else Path(os.path.commonpath(folders)) / "study")
    folder.mkdir(parents=True, exist_ok=True)
    texts = {}
    if len(folders) == 1:
        written = figures.draw_run(folders[0], study.references[study.runs[0].task], folder / "curves")
    else:
        written = []
        for name, panels in figures.make_panels(study).items():
            written += figures.save(figures.make_figure(panels, figures.make_handles(study, name)), folder / name)
        texts = {"curves.csv": tables.write_points(study), "table.md": tables.write_markdown(study)}
    if with_report:
        texts["report.html"] = report.write_html(study, shlex.join(["python", *sys.argv]))
    for name, text in texts.items():
        write_atomic(folder / name, text)
    return [*written, *(folder / name for name in texts)]


if __name__ == "__main__":
    main()
