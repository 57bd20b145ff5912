"""The pages: links lead somewhere, commands name what exists, README's Python runs, and generated pages are current."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import yaml

from docs import make_files, make_keys

ROOT = Path(__file__).parents[1]
NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "studies/README.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").glob("*.md"))]
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
        assert linked.exists(), f"{path.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{path.name} links to {target}"


def code_of(path: Path) -> str:
    """All code of a page: fenced blocks, indented blocks and spans."""
    text = path.read_text()
    fenced = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(
        r"`([^`\n]+(?:\n[^`\n]+)?)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    )
    return "\n".join([*fenced, *re.findall(r"^    (\S.*)", text, re.MULTILINE), *spans])


@page
def test_a_command_names_a_script_or_a_target_that_exists(path: Path) -> None:
    code = code_of(path)
    for script in re.findall(r"\bpython ([\w/]+\.py)\b", code):
        assert (ROOT / script).exists(), f"{path.name}: python {script}"
    targets = re.findall(r"^(\S+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^make ([a-z.][\w./-]*)", code, re.MULTILINE):
        assert target in targets, f"{path.name}: make {target}"
    for requirements in re.findall(r"(?<![\w/])(?:examples/)?requirements[\w-]*\.txt\b", code):
        assert (ROOT / requirements).exists(), f"{path.name}: {requirements}"


@page
def test_a_choice_on_a_command_line_is_a_file(path: Path) -> None:
    groups = (
        "agent/temperature",
        "agent/exploration",
        "agent",
        "preset",
        "hydra/launcher",
        "hydra/sweeper",
        "hydra/sweeper/pruner",
    )
    for group in groups:
        for chosen in re.findall(rf"(?<![\w./]){group}=\[?([a-z][\w,]*)(?![\w(])", code_of(path)):
            for choice in (name for name in chosen.split(",") if name not in ("my_agent", "centred")):
                assert (ROOT / "config" / group / f"{choice}.yaml").exists(), f"{path.name}: {group}={choice}"


generated = pytest.mark.parametrize("script", [make_keys, make_files], ids=["KEYS.md", "FILES.md"])


@generated
def test_a_stale_page_is_one_line(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = Path(str(script.__file__)).name
    stale = f"docs/{script.PAGE.name} is stale; run: python docs/{name}\n"
    monkeypatch.setattr(script, "PAGE", tmp_path / script.PAGE.name)
    script.PAGE.write_text(script.page() + "STALE\n")
    for arguments, code, message in ((["--check"], 1, stale), ([], 0, ""), (["--check"], 0, "")):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        assert script.main() == code
        assert capsys.readouterr().err == message
    assert "STALE" not in script.PAGE.read_text()


@pytest.mark.parametrize("name", ["make_keys", "make_files"])
def test_a_page_is_checked_from_the_command_line(name: str) -> None:
    checked = subprocess.run([sys.executable, f"docs/{name}.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_every_key_of_the_run_is_on_the_page_with_a_default_and_an_explanation() -> None:
    keys = {key.name: key for table in make_keys.tables(make_keys.TRAIN) for key in table.keys}
    config = yaml.safe_load(make_keys.TRAIN.read_text())
    assert {name for name, value in config.items() if not isinstance(value, dict)} - {"defaults"} <= keys.keys()
    assert not [name for name, key in keys.items() if not key.explanation or not key.default]


def test_comments_and_defaults_become_rows(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(
        "# The file.\n\ndefaults:\n  - head: values  # or quantiles\n  - _self_\n\nname: some\nrate: 1e-3  # a | b\n"
        "# Two lines\n# of comment.\ncount: 3\nshared: ${other}\n"
        "node:\n  _partial_: true\n  betas: [0.9, 0.999]  # Adam's\n"
        '  text: "a # b"  # quoted\n  rate: ${rate}\n'
    )
    first, node = make_keys.tables(path, "agent")
    assert first.keys == [
        ("agent/head", "`values`", "or quantiles"),
        ("agent.name", "`some`", ""),
        ("agent.rate", "`1e-3`", "a | b"),
        ("agent.count", "`3`", "Two lines of comment."),
    ]
    assert node.title == "agent.node.*"
    assert node.keys == [("agent.node.betas", "`[0.9, 0.999]`", "Adam's"), ("agent.node.text", "`a # b`", "quoted")]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1100


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code
    torch.manual_seed(1)
    exec(code[1], {})
    returns = ast.literal_eval(capsys.readouterr().out.splitlines()[-1])
    assert len(returns) == 5 and np.mean(returns) > -600  # random actions: -1200; swinging up: -100


def test_a_test_that_a_promise_names_exists() -> None:
    text = (ROOT / "docs" / "PROMISES.md").read_text()
    named = re.findall(r"`tests/(?:\w+/)*(\w+\.py)(?:::(\w+))?`", text)
    assert named
    for file, test in named:
        (found,) = (ROOT / "tests").rglob(file)
        assert f"def {test}" in found.read_text(), f"{file}::{test}"


def test_every_product_file_has_its_first_sentence_on_the_page_of_files(tmp_path: Path) -> None:
    lines = re.findall(r"^- \[.*?\]\(\.\./(.*?)\): (.+)$", make_files.page(), re.MULTILINE)
    listed = {path for path, _ in lines}
    folders = ("agent", "settings", "envs", "replay", "sinks", "run", "launch", "study", "dmc2gym", "hydra_plugins")
    modules = [*ROOT.glob("*.py"), *(path for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    assert {str(path.relative_to(ROOT)) for path in modules if path.name != "__init__.py"} <= listed
    path = tmp_path / "some.py"
    path.write_text('"""Reads 1.5 files\nof `a <b>`, a < b. Then\nmore.\n\nRest."""\n')
    assert make_files.first_sentence(path) == "Reads 1.5 files of `a <b>`, a &lt; b."
    path.write_text('"""Files: two of them. More."""')
    assert make_files.first_sentence(path) == "Files: two of them."
    path.write_text('"""Reads two small files: `python some.py`. More."""')
    assert make_files.first_sentence(path) == "Reads two small files."


REFERENCE = re.compile(r"\bsee[\s#]+`?((?:\w+/)+[\w.]*|[a-z]\w*(?:\.\w+)+)|\(((?:\w+/)+\w+\.py)\)")


def exists(reference: str) -> bool:
    """Whether the project has `some/file.py`, or `some.module` and any names that follow it."""
    if "/" in reference or reference.endswith(".py"):
        return (ROOT / reference).exists()
    words = reference.split(".")
    for length in range(len(words), 0, -1):
        path = ROOT.joinpath(*words[:length])
        for source in (path.with_suffix(".py"), path / "__init__.py"):
            if source.exists():
                text = source.read_text(encoding="utf-8")
                return all(re.search(rf"\b{name}\b", text) for name in words[length:])
    return False


def test_a_comment_refers_to_a_file_a_module_or_a_name_that_exists() -> None:
    files = [path for path in (*ROOT.glob("*.py"), *ROOT.glob("[a-z]*/**/*.py")) if ROOT / "tests" not in path.parents]
    references = [
        (str(path.relative_to(ROOT)), (match[1] or match[2]).rstrip("."))
        for path in files
        for match in REFERENCE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert len(references) > 20
    assert [(file, reference) for file, reference in references if not exists(reference)] == []
    assert exists("run.loop.Loop") and not exists("run.loop.Nothing") and not exists("run/nothing.py")
