"""The report is one HTML file with its figures, tables and videos, that loads and runs nothing."""

import json
import re
import shlex
from html import escape
from html.parser import HTMLParser
from pathlib import Path

from made_runs import make_run

import plot

HOSTILE = "x</style><script>f()</script>"


class Page(HTMLParser):
    """Collects a page's tags with their attributes, its text, and checks that every tag is closed."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts += [data.strip()] if data.strip() else []


def make_report(folder: Path, *runs: Path) -> tuple[str, Page]:
    plot.main([*map(str, runs), "--reference", "--report", "--out", str(folder)])
    text = (folder / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


def test_a_study_is_one_page_that_loads_and_runs_nothing(tmp_path: Path) -> None:
    made = []
    for env in ("cheetah_run", "walker_walk"):
        for label in ("plain", HOSTILE):
            for seed in (1, 2):
                returns = [(20_000 * k, 10.0 * k * seed) for k in range(1, 4 if label == "plain" else 7)]
                made.append(tmp_path / f"{env}-{len(made)}")
                make_run(made[-1], returns, env=env, seed=seed, length=120_000, experiment=label)
                (made[-1] / "train.csv").write_text("step,steps_per_second\n120000,100\n")
    entry = {"command": ["python", "train.py", HOSTILE], "commit": "abc123", "changed": True}
    (made[0] / "provenance.json").write_text(json.dumps([{}, entry]))
    (made[0] / "video").mkdir()
    (made[0] / "video/60000.mp4").write_bytes(b"film")
    text, page = make_report(tmp_path / "out", *made)
    assert page.open == []
    used = {value for tag, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")}
    assert used >= {"data:video/mp4;base64,ZmlsbQ=="} and not [
        link for link in used if not re.match("data:|#", str(link))
    ]
    assert "url(http" not in text and not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    # The interquartile mean, both tasks over steps and over minutes, and the profile of the label whose runs finished.
    assert sum(tag == "svg" and "viewbox" in attributes for tag, attributes in page.tags) == 6
    titles = ("interquartile mean over tasks", "cheetah_run", "walker_walk", "minutes of training")
    assert set(titles) <= set(page.texts) and f"sac, experiment={HOSTILE}" in page.texts
    assert {"unfinished: 60k of 120k", "abc123, changed", shlex.join(entry["command"])} <= set(page.texts)
    assert escape(HOSTILE) in text and HOSTILE not in text
    ids = [attributes["id"] for tag, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))  # figures refer to their parts by ids


def test_curves_follow_the_pages_colours(tmp_path: Path) -> None:
    text, _ = make_report(tmp_path / "out", make_run(tmp_path / "run", [(100_000, 1.0), (200_000, 2.0)]))
    svg = text[text.index("<svg") :]
    assert not re.search("#000000|#0072b2|#ffffff", svg)
    variables = set(re.findall(r"var\((--\w+)\)", svg))
    assert variables >= {"--ink", "--blue"}
    light, dark = re.findall(r":root \{([^}]*)\}", text)
    assert all(f"{name}: #" in colours for name in variables for colours in (light, dark))
