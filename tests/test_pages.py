"""The pages: links lead somewhere, commands name what exists, README's Python runs, and KEYS.md is current."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir

from docs import make_keys

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "policies" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def anchors(path: Path) -> set[str]:
    """The link targets of a page's headings: lower case, spaces as hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@page
def test_a_link_leads_to_a_file_and_a_heading_that_exist(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", path.read_text())
    for target in (target for target in targets if "://" not in target):
        name, _, anchor = target.partition("#")
        linked = path.parent / name if name else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def code_of(path: Path) -> str:
    """All code of a page, fenced blocks and spans, without line breaks within a command."""
    text = path.read_text().replace("\\\n", " ")
    fenced = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join([*fenced, *(span.replace("\n", " ") for span in spans)])


@page
def test_a_command_names_a_script_or_a_target_that_exists(path: Path) -> None:
    code = code_of(path)
    for script in re.findall(r"\bpython ([\w/]+\.py)\b", code):
        assert (ROOT / script).exists(), script
    targets = re.findall(r"^(\S+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^make ([a-z.][\w./-]*)", code, re.MULTILINE):
        assert target in targets, target


@cache
def compose_words(words: tuple[str, ...]) -> None:
    with initialize_config_dir(str(ROOT / "config"), version_base="1.3"):
        compose("train", list(words))


@page
def test_a_training_command_has_keys_and_choices_that_exist(path: Path) -> None:
    for command in re.findall(r"\bpython train\.py (.*)", code_of(path)):
        words = shlex.split(command, comments=True)
        if "-m" in words:  # the first value of each key
            words = [word if "[" in word else word.partition(",")[0] for word in words]
        named = ("hydra", "resume=", "trust=", "-", "env=$")  # Hydra's own, options, and what is no key of the YAML
        words = [word for word in words if "=" in word and not word.startswith(named)]
        if not re.search(r"<|…|\.\.\.|my_agent|centred|mine", command):
            compose_words(tuple(words))


def test_the_page_of_keys_is_current() -> None:
    assert make_keys.PAGE.read_text() == make_keys.make_page(), "run: python docs/make_keys.py"


def test_every_key_of_a_run_has_an_explanation() -> None:
    keys = [key for table in make_keys.read_tables(ROOT / "config" / "train.yaml").values() for key in table]
    assert len(keys) > 50 and [key.name for key in keys if not key.explanation or not key.default] == []


def test_comments_and_defaults_become_rows(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(
        "# The file.\n\ndefaults:\n  - head: values  # or quantiles\n  - _self_\n\nrate: 1e-3  # a | b\n"
        "# Two lines\n# of comment.\ncount: 3\nshared: ${other}\nset: ${oc.select:a.b,1}  # or 1\n"
        "node:\n  _partial_: true\n  betas: [0.9, 0.999]  # Adam's\n  rate: ${rate}\n"
    )
    tables = make_keys.read_tables(path, "agent")
    assert tables["agent.*"] == [
        ("agent/head", "`values`", "or quantiles"),
        ("agent.rate", "`1e-3`", "a | b"),
        ("agent.count", "`3`", "Two lines of comment."),
        ("agent.set", "*= a.b*, or 1", "or 1"),
    ]
    assert tables["agent.node.*"] == [("agent.node.betas", "`[0.9, 0.999]`", "Adam's")]


# A random policy returns -1200, one that swings up -100.
@pytest.mark.parametrize(("steps", "least"), [(520, -2000), pytest.param(3000, -600, marks=pytest.mark.thorough)])
def test_the_python_of_the_readme_runs(steps: int, least: float, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code
    torch.manual_seed(1)
    exec(code[1].replace("num_steps=3000", f"num_steps={steps}"), {})
    returns = ast.literal_eval(capsys.readouterr().out.splitlines()[-1])
    assert len(returns) == 5 and np.mean(returns) > least


def test_a_test_that_a_promise_names_exists() -> None:
    text = (ROOT / "docs" / "PROMISES.md").read_text()
    named = re.findall(r"`tests/(?:\w+/)*(\w+\.py)(?:::(\w+))?`", text)
    assert named
    for file, test in named:
        (found,) = (ROOT / "tests").rglob(file)
        assert f"def {test}" in found.read_text(), f"{file}::{test}"
