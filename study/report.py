"""A study as one HTML file that loads nothing else: curves, tables, differing settings, last videos."""

import base64
import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path

import yaml

from study import figures, tables
from study.figures import PAGE_COLOURS
from study.groups import differences
from study.summary import Study

CSS = Path(__file__).with_name("report.css")
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; media-src data:"


def write_html(study: Study, command: str = "") -> str:
    """Returns the page; its footer shows the command that makes it."""
    labels = {run.folder: group.label for group in study.groups for run in group.runs}
    title = f"{len(study.runs)} run{'s' if len(study.runs) > 1 else ''}: {', '.join(study.tasks)}"
    returns, pairs = tables.tabulate(study), tables.tabulate_improvements(study)
    sections = {
        "Settings that differ": _make_differences(study, labels),
        "Last videos": _make_videos(study, labels),
        "Runs": _make_runs(study, labels),
    }
    page = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{CSS.read_text(encoding='utf-8')}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(note)}</p>" for note in study.notes),
        _make_legend(study) if len(study.runs) > 1 else "",
        _draw(study),
        f"<h2>Returns</h2>{_make_table(*returns)}",
        f"<h2>Probability of improvement</h2>{_make_table(*pairs)}" if pairs else "",
        *(f"<p>{escape(text)}</p>" for text in tables.choose_legends(study)),
        *(f"<h2>{name}</h2>{content}" for name, content in sections.items() if content),
        f"<footer>Written {datetime.now():%Y-%m-%d %H:%M} by <code>{escape(command)}</code></footer>",
        "</body></html>",
    ]
    return "\n".join(page) + "\n"


def _draw(study: Study) -> str:
    """Draws each panel as a figure of its own, so that the page can place them in as many columns as fit."""
    panels = [panel for of_figure in figures.make_panels(study).values() for panel in of_figure]
    if len(study.runs) == 1:
        panels = figures.make_run_panels(study.runs[0], study.references[study.runs[0].task])
    drawn = [figures.to_svg(figures.make_figure([panel]), number) for number, panel in enumerate(panels)]
    return f'<div class="panels">{"".join(f"<figure>{svg}</figure>" for svg in drawn)}</div>'


def _make_legend(study: Study) -> str:
    entries = []
    for label, line_style in study.styles.items():
        colour = PAGE_COLOURS.get(line_style["color"], line_style["color"])
        dash = "" if line_style["linestyle"] == "-" else " ".join(str(2 * part) for part in line_style["linestyle"][1])
        line = f'<line x2="34" y1="5" y2="5" stroke-width="2" stroke-dasharray="{dash}" style="stroke: {colour}"/>'
        entries.append(f"<li><svg>{line}</svg>{escape(label)}</li>")
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _make_table(columns: Sequence[str], *rows: Sequence[str], kind: str = "") -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _make_differences(study: Study, labels: dict[Path, str]) -> str:
    """Makes a table: a row per key, a column per label; a cell lists a label's values, such as one for each task."""
    rows = []
    for key, values in differences(study.runs).items():
        shown: dict[str, dict[str, None]] = {label: {} for label in study.labels}
        for run, value in zip(study.runs, values, strict=True):
            shown[labels[run.folder]][str(value)] = None
        rows.append((key, *map(" / ".join, shown.values())))
    return _make_table(("key", *study.labels), *rows, kind="long") if rows else ""


def _make_runs(study: Study, labels: dict[Path, str]) -> str:
    """Makes a table of the runs, with the commit, machine and command of their last process."""
    top = os.path.commonpath([run.folder.parent for run in study.runs])
    rows = [("task", "agent", "seed", "steps", "last return", "folder", "commit", "hardware", "command")]
    for run in study.runs:
        steps = tables.format_steps(run.length)
        steps = steps if run.finished else f"unfinished: {tables.format_steps(run.last_step)} of {steps}"
        last = tables.format_number(run.returns[1][-1]) if run.last_step else tables.BLANK
        origin = run.provenance[-1] if run.provenance else {}
        commit = str(origin.get("commit") or tables.BLANK)[:10] + (", changed" if origin.get("changed") else "")
        hardware = f"{origin.get('gpu') or origin.get('processor')}, threads: {origin.get('threads')}"
        written = run.folder / ".hydra/overrides.yaml"  # a sweep's process has another command than its runs
        words = ["python", "train.py", *yaml.safe_load(written.read_text(encoding="utf-8"))] if written.exists() else []
        folder, command = os.path.relpath(run.folder, top), shlex.join(words or origin.get("command") or ())
        rows.append((run.task, labels[run.folder], str(run.seed), steps, last, folder, commit, hardware, command))
    return _make_table(*rows, kind="long")


def _make_videos(study: Study, labels: dict[Path, str]) -> str:
    videos = []
    for run in study.runs:
        if path := run.last_video:
            source = base64.b64encode(path.read_bytes()).decode()
            step = tables.format_steps(int(path.stem))
            caption = escape(f"{run.task}, {labels[run.folder]}, seed {run.seed}, at step {step}")
            videos.append(
                f'<figure><video controls muted loop playsinline preload="metadata" aria-label="{caption}" '
                f'src="data:video/mp4;base64,{source}"></video><figcaption>{caption}</figcaption></figure>'
            )
    return f'<div class="videos">{"".join(videos)}</div>' if videos else ""
