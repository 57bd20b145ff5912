"""A study as one HTML file that needs no network: curves to hover, the table, what differs, each run's last video."""

import base64
import json
import math
import os
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from study import style, tables
from study.groups import differences, show
from study.run_figure import PANELS
from study.runs import Run, read
from study.statistics import Average
from study.style import Look
from study.summary import Study

HERE = Path(__file__).resolve().parent
# Nothing but what is in the file may be loaded.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; media-src data:; img-src data:"


def html(study: Study) -> str:
    """The page.

    Raises:
        OSError: if a video cannot be read.
    """
    labels = {
        run.folder: line.group.label for lines in study.tasks.values() for line in lines for run in line.group.runs
    }
    tasks = ", ".join(study.tasks)
    title = f"{len(study.runs)} run{'s' if len(study.runs) > 1 else ''}: {tasks}"
    differing = _differences(study, labels)
    videos = "".join(_video(run, labels[run.folder]) for run in study.runs)
    sections = [
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(note)}</p>" for note in study.notes),
        '<div id="legend"></div><div id="panels"></div>',
        f"<h2>Returns</h2>{_table(*_returns(study))}<p>{escape(tables.LEGEND)}</p>",
        f"<h2>Settings that differ</h2>{differing}" if differing else "",
        f"<h2>Last videos</h2><div id='videos'>{videos}</div>" if videos else "",
        f"<h2>Runs</h2>{_runs(study, labels)}",
    ]
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    page = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
        *sections,
        f'<script type="application/json" id="data">{_json(_data(study))}</script>',
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(page) + "\n"


def _data(study: Study) -> dict[str, Any]:
    """What report.js draws."""
    ours, theirs = style.of_labels(study.labels), style.of_references(study.methods)
    panels = _panels(study, ours, theirs)
    legend = [{"label": name, "colour": seen.colour, "dash": seen.dash} for name, seen in (ours | theirs).items()]
    if len(study.runs) == 1:
        panels[0]["title"] += ": mean, and minimum to maximum of its episodes"
        panels[0]["lines"][0] |= _episode_band(study.runs[0])
        panels += _panels_of_one(study.runs[0], study.labels[0], ours[study.labels[0]])
    return {"panels": panels, "legend": legend, "fewer": style.FEWER_RUNS}


def _panels(study: Study, ours: dict[str, Look], theirs: dict[str, Look]) -> list[dict[str, Any]]:
    panels = []
    if study.overall:
        lines = [_line(one.label, one.average, ours[one.label]) for one in study.overall]
        counts = " to ".join(str(count) for count in sorted({len(one.lines) for one in study.overall}))
        panels.append({"title": f"interquartile mean of {counts} tasks", "unit": "return", "lines": lines})
    for task, found in study.tasks.items():
        lines = [
            {
                **_line(line.group.label, line.average, ours[line.group.label]),
                "ends": [
                    {"step": run.last_step, "value": run.returns[1][-1], "seed": run.seed}
                    for run in line.group.runs
                    if run.last_step and not run.finished
                ],
            }
            for line in found
        ]
        for reference in study.references.get(task, []):
            seen = theirs[reference.label]
            curve = {"steps": reference.steps, "values": reference.returns}
            lines.append({"label": reference.label, "colour": seen.colour, "dash": seen.dash, "width": 1.2, **curve})
        panels.append({"title": task, "unit": "return", "lines": lines})
    return panels


def _episode_band(run: Run) -> dict[str, list[float]]:
    ends = {"low": "episode_reward_min", "high": "episode_reward_max"}
    return {end: run.evaluations[column][1] for end, column in ends.items() if column in run.evaluations}


def _panels_of_one(run: Run, label: str, seen: Look) -> list[dict[str, Any]]:
    """A run's training curves."""
    train = read(run.folder / "train.csv")
    panels = []
    for column, title, unit in PANELS:
        if column in train:
            steps, values = train[column]
            curve = {"steps": steps, "values": values}
            line = {"label": label, "colour": seen.colour, "dash": seen.dash, "width": 1, **curve}
            panels.append({"title": title, "unit": unit, "lines": [line]})
    return panels


def _line(label: str, average: Average, seen: Look) -> dict[str, Any]:
    def plain(values: np.ndarray) -> list[float | None]:
        return [None if math.isnan(value) else round(float(value), 3) for value in values]

    return {
        "label": label,
        "colour": seen.colour,
        "dash": seen.dash,
        "width": 2,
        "steps": [int(step) for step in average.steps],
        "values": plain(average.value),
        "low": plain(average.low),
        "high": plain(average.high),
        "fewer": average.fewer.tolist(),
    }


def _json(data: Any) -> str:
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")  # no label ends the script


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]], kind: str = "") -> str:
    """Rows of cells that are HTML already."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _returns(study: Study) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    shown, methods = tables.table(study), set(study.methods)

    def cell(text: str, row: tuple[str, ...]) -> str:
        return f'<span class="theirs">{escape(text)}</span>' if row[1] in methods else escape(text)

    return shown.columns, [tuple(cell(text, row) for text in row) for row in shown.rows]


def _differences(study: Study, labels: dict[Path, str]) -> str:
    """A row a key, a column a label; a label's own differences, such as those between its tasks, in one cell."""
    rows = []
    for key, values in differences(study.runs).items():
        cells = []
        for label in study.labels:
            own = [show(value) for run, value in zip(study.runs, values, strict=True) if labels[run.folder] == label]
            cells.append(escape(" / ".join(dict.fromkeys(own))))
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


def _video(run: Run, label: str) -> str:
    path = run.last_video
    if path is None:
        return ""
    source = base64.b64encode(path.read_bytes()).decode()
    step = tables.steps_text(int(path.stem))
    caption = escape(f"{run.task}, {label}, seed {run.seed}, at step {step}")
    return (
        f'<figure><video controls muted loop playsinline preload="metadata" aria-label="{caption}" '
        f'src="data:video/mp4;base64,{source}"></video><figcaption>{caption}</figcaption></figure>'
    )
