"""The pages: links lead somewhere, commands name what exists, and README's Python runs."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir

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
