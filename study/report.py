"""A study as one HTML file that loads nothing else: interactive curves, tables, differing settings, last videos."""

import base64
import json
import math
import os
import shlex
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from files.reading import read_bytes, read_text
from study import style, tables, training
from study.figures import INFO, info_columns
from study.groups import Group, differences, show
from study.profiles import TAUS, Profile
from study.runs import Run, read
from study.statistics import Average
from study.summary import Study
from utils import UserError

TRAINING = "<details><summary>Losses, temperature, entropy, speed</summary><div class='panels'></div></details>"
HERE = Path(__file__).resolve().parent
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; media-src data:; img-src data:"
)


def html(study: Study, command: str = "") -> str:
    """Returns the page; its footer shows the command that makes it. Raises UserError for an unreadable log or video."""
    labels = {run.folder: group.label for group in study.groups for run in group.runs}
    tasks = ", ".join(study.tasks)
    title = f"{len(study.runs)} run{'s' if len(study.runs) > 1 else ''}: {tasks}"
    differing = _differences(study, labels)
    videos = "".join(_video(run, labels[run.folder]) for run in study.runs)
    pairs = tables.improvements(study)
    escaped = [tuple(map(escape, row)) for row in pairs.rows]
    sections = [
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(note)}</p>" for note in study.notes),
        '<div id="legend"></div><div class="panels"></div>',
        TRAINING if len(study.runs) > 1 else "",
        f"<h2>Returns</h2>{_table(*_returns(study))}<p>{escape(tables.LEGEND)}</p>",
        f"<h2>Probability of improvement</h2>{_table(pairs.columns, escaped)}" if escaped else "",
        *(f"<p>{escape(text)}</p>" for text in tables.comparison_legends(study)),
        f"<h2>Settings that differ</h2>{differing}" if differing else "",
        f"<h2>Last videos</h2><div id='videos'>{videos}</div>" if videos else "",
        f"<h2>Runs</h2>{_runs(study, labels)}",
        f"<h2>Made with</h2>{made}" if (made := _provenance(study)) else "",
        f"<footer>Written {datetime.now():%Y-%m-%d %H:%M} by <code>{escape(command)}</code></footer>" * bool(command),
    ]
    data = json.dumps(_data(study), allow_nan=False).replace("<", "\\u003c")  # so no label can end the script
    css, script = (read_text(HERE / name, inside=0) for name in ("report.css", "report.js"))
    page = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{css}</style></head><body>",
        *sections,
        f'<script type="application/json" id="data">{data}</script>',
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(page) + "\n"


def _data(study: Study) -> dict[str, Any]:
    """The data that report.js draws."""
    panels = []
    if study.overall:
        curves = [_average_curve(overall.label, overall.average, study) for overall in study.overall]
        panels.append(_panel(f"interquartile mean of {study.num_overall_tasks} tasks", "return", curves))
    for task, groups in study.tasks.items():
        curves = [_average_curve(group.label, group.average, study) | {"ends": _ends(group)} for group in groups]
        for reference in study.references[task]:
            curves.append(_curve(reference.label, study, 1.2, steps=reference.steps, values=reference.returns))
        panels.append(_panel(task, "return", curves))
    if study.profiles:
        steps = TAUS.tolist()
        curves = [_curve(each.label, study, 2, steps=steps, **_with_band(each)) for each in study.profiles]
        title = f"performance profile over {study.num_profile_tasks} tasks"
        panels.append(_panel(title, "share of runs above tau", curves) | {"axis": "tau"})
    if len(study.runs) == 1:
        panels[0]["title"] += ": mean, and minimum to maximum of its episodes"
        evaluations = study.runs[0].evaluations
        for end in ("low", "high"):
            if (column := f"episode_reward_{'min' if end == 'low' else 'max'}") in evaluations:
                logged = dict(zip(*evaluations[column], strict=True))
                panels[0]["lines"][0][end] = [logged.get(step) for step in panels[0]["lines"][0]["steps"]]
        train = training.without_seeding(read(study.runs[0].folder / "train.csv"))
        single = [(train[column], title, unit, 1) for column, title, unit in training.PANELS if column in train]
        single += [
            (evaluations[column], f"{column.removeprefix(INFO)}, mean of an evaluation", "", 2)
            for column in info_columns(evaluations)
        ]
        for (steps, values), title, unit, width in single:
            panels.append(_panel(title, unit, [_curve(study.labels[0], study, width, steps=steps, values=values)]))
    panels_of = [panels] + ([_training_panels(study)] if len(study.runs) > 1 else [])
    legend = [
        {"label": label, "colour": line_style.colour, "dash": line_style.dash}
        for label, line_style in study.styles.items()
    ]
    return {"panels": panels_of, "legend": legend, "fewer": style.FEWER_RUNS, "dark": style.ON_DARK}


def _training_panels(study: Study) -> list[dict[str, Any]]:
    """Returns a panel per task and column of train.csv that any of its runs has, with a curve per group."""
    panels = []
    for task, groups in study.tasks.items():
        of_groups = [(group.label, training.averages(group)) for group in groups]
        for column, title, unit in training.PANELS:
            curves = [_average_curve(label, logged[column], study) for label, logged in of_groups if column in logged]
            if curves:
                panels.append(_panel(f"{task}: {title}", unit, curves))
    return panels


def _panel(title: str, unit: str, curves: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "unit": unit, "lines": curves}


def _curve(label: str, study: Study, width: float, **points: Any) -> dict[str, Any]:
    line_style = study.styles[label]
    return {"label": label, "colour": line_style.colour, "dash": line_style.dash, "width": width, **points}


def _average_curve(label: str, average: Average, study: Study) -> dict[str, Any]:
    steps = [int(step) for step in average.steps]
    return _curve(label, study, 2, steps=steps, **_with_band(average), fewer=average.fewer.tolist())


def _with_band(curve: Average | Profile) -> dict[str, list[float | None]]:
    def plain(values: np.ndarray) -> list[float | None]:
        return [None if math.isnan(value) else float(f"{value:.6g}") for value in values]

    return {"values": plain(curve.value), "low": plain(curve.low), "high": plain(curve.high)}


def _ends(group: Group) -> list[dict[str, Any]]:
    """Returns the last points of unfinished runs."""
    return [
        {"step": run.last_step, "value": run.returns[1][-1], "seed": run.seed}
        for run in group.runs
        if run.last_step and not run.finished
    ]


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]], kind: str = "") -> str:
    """Formats rows whose cells are HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _returns(study: Study) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    returns, methods = tables.table(study), set(study.methods)

    def cell(text: str, row: tuple[str, ...]) -> str:
        return f'<span class="theirs">{escape(text)}</span>' if row[1] in methods else escape(text)

    return returns.columns, [tuple(cell(text, row) for text in row) for row in returns.rows]


def _differences(study: Study, labels: dict[Path, str]) -> str:
    """Makes a table: a row per key, a column per label; a cell lists a label's values, such as one for each task."""
    rows = []
    for key, values in differences(study.runs).items():
        cells = []
        for label in study.labels:
            shown = [show(value) for run, value in zip(study.runs, values, strict=True) if labels[run.folder] == label]
            cells.append(escape(" / ".join(dict.fromkeys(shown))))
        rows.append((escape(key), *cells))
    return _table(("key", *study.labels), rows, "long") if rows else ""


def _runs(study: Study, labels: dict[Path, str]) -> str:
    top = os.path.commonpath([run.folder.parent for run in study.runs])
    rows = []
    for run in study.runs:
        reached = f"{tables.steps_text(run.last_step)} of {tables.steps_text(run.length)}"
        state = "finished" if run.finished else f'<span class="unfinished">{reached}</span>'
        last = tables.number_text(run.returns[1][-1]) if run.last_step else tables.BLANK
        cells = (run.task, labels[run.folder], str(run.seed), last, os.path.relpath(run.folder, top))
        shown = [escape(cell) for cell in cells]
        rows.append((*shown[:3], state, *shown[3:]))
    return _table(("task", "agent", "seed", "steps", "last return", "folder"), rows)


def _provenance(study: Study) -> str:
    """Makes a table with a row per process that worked on a run."""
    top = os.path.commonpath([run.folder.parent for run in study.runs])
    rows = []
    for run in study.runs:
        for entry in run.provenance:
            packages = entry.get("packages")
            versions = {"python": entry.get("python")} | (packages if isinstance(packages, dict) else {})
            command, commit = entry.get("command"), str(entry.get("commit") or tables.BLANK)
            cells = (
                os.path.relpath(run.folder, top),
                commit[:10] + (", changed" if entry.get("changed") else ""),
                f"{entry.get('started')} to {entry.get('ended') or '?'}",
                f"{entry.get('gpu') or entry.get('processor')}, threads: {entry.get('threads')}",
                ", ".join(f"{name} {version}" for name, version in versions.items() if version),
                shlex.join(map(str, command)) if isinstance(command, list) else tables.BLANK,
            )
            rows.append(tuple(map(escape, cells)))
    return _table(("folder", "commit", "time", "hardware", "versions", "command"), rows, "long") if rows else ""


def _video(run: Run, label: str) -> str:
    path = run.last_video
    if path is None:
        return ""
    try:
        source = base64.b64encode(read_bytes(path, inside=2)).decode()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    step = tables.steps_text(int(path.stem))
    caption = escape(f"{run.task}, {label}, seed {run.seed}, at step {step}")
    return (
        f'<figure><video controls muted loop playsinline preload="metadata" aria-label="{caption}" '
        f'src="data:video/mp4;base64,{source}"></video><figcaption>{caption}</figcaption></figure>'
    )
