"""The report in a real browser: curves, hover, table and videos, with no network and nothing on the console."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import make_run

import plot
from video import filming

HOSTILE = "x</script><b onclick='f()'>"


class Noise:
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def render(self) -> np.ndarray:
        return self.random.integers(0, 256, (64, 64, 3), np.uint8)


def film(run: Path, step: int) -> None:
    env = Noise()
    with filming(run / "video" / f"{step}.mp4", seconds_per_step=0.1) as recorder:
        for _ in range(30):
            recorder.record(env)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a study's report: two tasks, two settings and three seeds, with one run killed."""
    sweep = tmp_path_factory.mktemp("exp") / "sweep"
    for env in ("cheetah_run", "walker_walk"):
        for place, label in enumerate(("plain", HOSTILE)):
            for seed in (1, 2, 3):
                killed = (env, label, seed) == ("cheetah_run", "plain", 3)
                returns = [(20_000 * k, 10.0 * k * seed) for k in range(1, 4 if killed else 7)]
                run = make_run(
                    sweep / f"{env}-{place}-{seed}", returns, env=env, seed=seed, length=120_000, experiment=label
                )
                if label == "plain" and env == "cheetah_run":
                    rows = [
                        f"{1000 * k},{seed},{k / 100 if k > 1 else ''}" for k in range(1, 122)
                    ]  # the last episode ends beyond the run's length
                    (run / "train.csv").write_text("\n".join(["step,critic_loss,actor_entropy", *rows, ""]))
                if seed == 1:
                    film(run, 60_000)
                    film(run, 120_000)
    assert plot.main([str(sweep), "--reference", "--report"]) == 0
    return (sweep / "study" / "report.html").as_uri()


@pytest.fixture
def page(browser: Any, report: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The report, opened at a width in CSS pixels; after the test the console must be empty."""
    width = getattr(request, "param", 1300)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(report)
    wait(browser, "return document.querySelectorAll('polyline').length > 0")
    yield browser
    assert browser.get_log("browser") == []


def wait(browser: Any, script: str, *arguments: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 20, poll_frequency=0.05).until(lambda opened: opened.execute_script(script, *arguments))


def panels(page: Any) -> list[Any]:
    """The visible panels: those of training are folded away."""
    return [panel for panel in page.find_elements("css selector", ".panel") if panel.is_displayed()]


def test_the_curves_are_those_of_the_study(page: Any) -> None:
    titles = [panel.text.split("\n")[0] for panel in panels(page)]
    assert titles == [
        "interquartile mean of 2 tasks return",
        "cheetah_run return",
        "walker_walk return",
        "performance profile over 2 tasks share of runs above tau",
    ]
    drawn = panels(page)[1].find_elements("css selector", "polyline")
    points = {
        (line.get_attribute("data-label"), bool(line.get_attribute("stroke-dasharray"))): line.get_attribute("points")
        for line in drawn
    }
    assert len(points[("sac, experiment=plain", False)].split()) == 3  # to 60k, where one run was killed
    assert len(points[("sac, experiment=plain", True)].split()) == 4  # from there on, without that run
    assert len(points[(f"sac, experiment={HOSTILE}", False)].split()) == 6
    heights = [float(point.split(",")[1]) for point in points[(f"sac, experiment={HOSTILE}", False)].split()]
    assert heights == sorted(heights, reverse=True)  # y points down: the curve rises
    assert len(panels(page)[1].find_elements("css selector", "path.end")) == 1
    assert len(panels(page)[1].find_elements("css selector", "polygon")) == 2
    assert ("published: pytorch_sac", True) in points


def test_a_pointer_on_a_curve_reads_its_values(page: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    picture = panels(page)[1].find_element("tag name", "svg")
    tip = panels(page)[1].find_element("css selector", ".tip")
    assert not tip.is_displayed()
    ActionChains(page).move_to_element_with_offset(picture, int(picture.size["width"] / 2) - 12, 0).perform()
    said = tip.text.split("\n")
    assert said[0] == "120k steps"
    assert said[1] == "sac, experiment=plain: 90 [60, 120]"  # of the two runs that got there
    assert said[2] == f"sac, experiment={HOSTILE}: 120 [60, 180]"
    ActionChains(page).move_to_element(page.find_element("tag name", "h1")).perform()
    assert not tip.is_displayed()


def test_a_pointer_on_a_profile_reads_tau_and_shares(page: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    picture = panels(page)[3].find_element("tag name", "svg")
    axis = [text.text for text in picture.find_elements("tag name", "text")][-1]
    page.execute_script("arguments[0].scrollIntoView()", picture)
    width = picture.size["width"]
    ActionChains(page).move_to_element_with_offset(picture, round(46 + 0.09 * (width - 66) - width / 2), 0).perform()
    said = panels(page)[3].find_element("css selector", ".tip").text.split("\n")
    assert axis == "tau" and re.fullmatch(r"tau = 0\.(08|09|1)", said[0])
    assert said[1] == "sac, experiment=plain: 0.58"  # (1 / 2 + 2 / 3) / 2; no band: one task has only two runs
    assert re.fullmatch(re.escape(f"sac, experiment={HOSTILE}: 0.67 ") + r"\[0\.[1-5]\d, 1\.00\]", said[2])


def test_losses_and_entropies_unfold_with_the_mean_of_each_group(page: Any) -> None:
    page.find_element("tag name", "summary").click()
    wait(page, "return document.querySelectorAll('details polyline').length == 2")
    loss, entropy = page.find_elements("css selector", "details .panel")
    assert [panel.text.split("\n")[0] for panel in (loss, entropy)] == [
        "cheetah_run: Q loss",
        "cheetah_run: policy entropy nats",
    ]
    data = json.loads(page.find_element("id", "data").get_attribute("textContent"))
    (of_loss,), (of_entropy,) = (panel["lines"] for panel in data["panels"][1])
    assert of_loss["values"] == [2.0] * 50 and of_loss["low"] == [1.0] * 50 and of_loss["high"] == [3.0] * 50
    assert of_entropy["steps"][:2] == [2400, 4800] and of_entropy["values"][:2] == [0.02, 0.035]  # rows 2; 3 and 4
    assert (of_entropy["steps"][-1], of_entropy["values"][-1]) == (120_000, 1.195)  # rows 118 to 121
    page.find_element("tag name", "summary").click()


def test_a_label_switches_its_curves_off_and_on(page: Any) -> None:
    button = page.find_element("css selector", "#legend button")
    script = "return document.querySelectorAll(\"polyline[data-label='sac, experiment=plain']\").length"
    shown = page.execute_script(script)
    button.click()
    assert page.execute_script(script) == 0 and button.get_attribute("aria-pressed") == "false"
    button.click()
    assert page.execute_script(script) == shown > 0


def test_the_last_videos_play(page: Any) -> None:
    videos = page.find_elements("tag name", "video")
    captions = [video.get_attribute("aria-label") for video in videos]
    assert len(videos) == 4 and captions[1] == f"cheetah_run, sac, experiment={HOSTILE}, seed 1, at step 120k"
    page.execute_script("arguments[0].scrollIntoView(); ", videos[-1])
    wait(page, "return arguments[0].readyState >= 2", videos[-1])
    page.execute_script("arguments[0].play()", videos[-1])
    wait(page, "return arguments[0].currentTime > 0.3", videos[-1])
    assert page.execute_script("return arguments[0].error", videos[-1]) is None
    assert page.execute_script("return arguments[0].videoWidth", videos[-1]) == 64
    page.execute_script("arguments[0].pause(); scrollTo(0, 0)", videos[-1])


def test_tables_and_what_differs(page: Any) -> None:
    returns, improvement, differing, runs = page.find_elements("tag name", "table")
    cells = [
        [cell.text for cell in row.find_elements("tag name", "td")] for row in returns.find_elements("tag name", "tr")
    ]
    assert cells[1] == ["cheetah_run", "sac, experiment=plain", "2 of 3 finished", "75 [50, 100] (2/3)", *cells[1][4:]]
    assert cells[3][:4] == ["cheetah_run", "published: pytorch_sac", "3", "214"]
    assert [cell.text for cell in improvement.find_elements("tag name", "td")] == [
        *("sac, experiment=plain", f"sac, experiment={HOSTILE}", "0.42", "2")  # (2 / 6 + 1 / 2) / 2
    ]
    assert [row.text.split()[0] for row in differing.find_elements("css selector", "tbody tr")] == ["experiment"]
    assert len(runs.find_elements("css selector", "tbody tr")) == 12
    assert [cell.text for cell in runs.find_elements("css selector", ".unfinished")] == ["60k of 120k"]


def test_text_from_a_run_is_text(page: Any) -> None:
    assert page.find_elements("tag name", "b") == []


def test_nothing_is_asked_of_a_network(page: Any) -> None:
    loaded = page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


@pytest.mark.parametrize("page", [390, 1800], indirect=True)
def test_it_fits_narrow_and_wide_screens(page: Any) -> None:
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    columns = {panel.location["x"] for panel in panels(page)}
    assert len(columns) == (1 if page.execute_script("return innerWidth") < 500 else 4)


def test_one_runs_report_has_its_losses(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [(1000, 1.0), (2000, 2.0)])
    (run / "train.csv").write_text("step,critic_loss,steps_per_second\n1000,0.5,90\n2000,0.25,100\n")
    assert plot.main([str(run), "--report"]) == 0
    browser.get((run / "report.html").as_uri())
    wait(browser, "return document.querySelectorAll('polyline').length == 3")
    assert [panel.text.split("\n")[0] for panel in panels(browser)][1:] == [
        "Q loss",
        "speed, once updates run environment steps / s",
    ]
    assert len(panels(browser)[0].find_elements("css selector", "polygon")) == 1  # the band of its episodes
    assert browser.get_log("browser") == []


def test_in_the_dark_page_and_curves_are_readable(page: Any) -> None:
    def colours() -> tuple[str, ...]:
        script = "return [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color, "
        script += "...[...document.querySelectorAll('polyline')].map((line) => line.getAttribute('stroke'))]"
        return tuple(page.execute_script(script))

    light = colours()
    assert light[0] == "rgb(255, 255, 255)" and "#000000" in light
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    try:
        wait(page, "return ![...document.querySelectorAll('polyline')].some((line) => "
                   "line.getAttribute('stroke') == '#000000')")  # fmt: skip
        assert colours()[:2] == ("rgb(22, 24, 28)", "rgb(230, 230, 230)")
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    wait(page, "return document.querySelector('polyline').getAttribute('stroke') == '#0072B2'")
    assert colours() == light


def test_commands_and_commits_are_shown_as_text(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [(1000, 1.0)])
    entry = {"command": ["python", "train.py", HOSTILE], "commit": "abc123", "started": "2026-11-25 04:00"}
    (run / "provenance.json").write_text(json.dumps([entry]))
    assert plot.main([str(run), "--report"]) == 0
    browser.get((run / "report.html").as_uri())
    cells = [cell.text for cell in browser.find_elements("css selector", "table")[-1].find_elements("tag name", "td")]
    assert cells[:3] == ["run", "abc123", "2026-11-25 04:00 to ?"] and shlex.quote(HOSTILE) in cells[-1]
    assert browser.find_elements("tag name", "b") == []
