"""Draws runs as figures, tables and a report: `python plot.py exp/<day>/<sweep> --reference --report`."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from files.writing import make_folder, write_text
from settings.operating_system import begin_command
from study import figures, report, runs, summary, tables
from study.figures import draw_run
from utils import OneLineParser, UserError, print_error

__all__ = ["draw_run"]


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = OneLineParser(prog="plot.py", description="Draws the curves of one run, or a study of several runs.")
    parser.add_argument("paths", nargs="+", help="run folders, sweeps, folders of them, or patterns in quotes")
    parser.add_argument("--reference", action="store_true", help="add published results")
    parser.add_argument("--report", action="store_true", help="also write report.html: curves, tables, videos")
    parser.add_argument("--out", type=Path, help="output folder (default: the run folder, or study/ beside the runs)")
    args = parser.parse_args(argv)
    try:
        begin_command()
        for path in draw(args.paths, args.reference, args.report, args.out):
            print(path)
    except UserError as error:
        return print_error(error, parser.prog)
    return 0


def draw(paths: Sequence[str], with_references: bool, with_report: bool, out: Path | None) -> list[Path]:
    """Draws the runs in `paths` and returns the files written.

    Raises UserError for a path without runs, logs that cannot be read, or a folder that cannot be written.
    """
    study_runs = runs.find(paths)
    study = summary.summarise(study_runs, with_references)
    for note in study.notes:
        if note.startswith("--reference"):
            print(note, file=sys.stderr)
    if len(study_runs) > 1 and not any(run.last_step for run in study_runs):
        raise UserError(f"{' '.join(paths)}: no evaluation in any of the {len(study_runs)} runs yet")
    folders = [str(run.folder) for run in study_runs]
    folder = out or (study_runs[0].folder if len(study_runs) == 1 else Path(os.path.commonpath(folders)) / "study")
    if (folder / "__init__.py").exists():  # this project's own folder of that name
        raise UserError(f"--out: name a folder; the one that holds all these runs, {folder.parent}, has its own study/")
    try:
        make_folder(folder) if out is None else out.mkdir(parents=True, exist_ok=True)
        if len(study_runs) == 1:
            written = draw_run(study_runs[0].folder, study.references[study_runs[0].task], folder / "curves")
        else:
            written = figures.save(figures.draw_tasks(study), folder / "curves")
            if study.overall:
                written += figures.save(figures.draw_overall(study), folder / "overall")
            texts = {"curves.csv": tables.points(study), "table.md": tables.markdown(study)}
            if study.profiles:
                written += figures.save(figures.draw_profiles(study), folder / "profiles")
                texts["profiles.csv"] = tables.profile_points(study)
            if study.improvements:
                texts["improvement.csv"] = tables.improvement_rows(study)
            for name, text in texts.items():
                write_text(folder / name, text)
                written.append(folder / name)
        if with_report:
            write_text(folder / "report.html", report.html(study, shlex.join(["python", *sys.argv])))
            written.append(folder / "report.html")
    except OSError as error:
        raise UserError(f"{'--out=' if out else ''}{folder}: it cannot be written ({error.strerror})") from None
    return written


if __name__ == "__main__":
    sys.exit(main())
