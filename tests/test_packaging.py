"""What pip and uv read: named extras exist, pins are complete and within their ranges, and nothing is left out."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
LEFT_OUT = {"benchmarks", "build", "docs", "examples", "exp", "tests"}
MODULES = [*ROOT.glob("*.py"), *ROOT.glob("[a-z]*/**/*.py")]


def read_requirements(lines: list[str]) -> list[Requirement]:
    return [Requirement(line.partition(" #")[0]) for line in lines if line.strip() and line[0] not in "#-"]


PINS = {
    canonicalize_name(pin.name): pin
    for name in ("requirements.txt", "constraints.txt")
    for pin in read_requirements((ROOT / name).read_text(encoding="utf-8").splitlines())
}


def test_an_extra_that_a_message_or_a_page_names_exists() -> None:
    paths = [*MODULES, *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("config/**/*.yaml"), ROOT / "Makefile"]
    lists = [names for path in paths for names in re.findall(r"\.\[([a-z0-9,]+)\]'", path.read_text(encoding="utf-8"))]
    named = {name for names in lists for name in names.split(",")}
    assert {"data", "dev", "export", "joblib", "slurm"} <= named <= EXTRAS.keys()


def test_whatever_is_required_has_an_exact_pin_within_its_range() -> None:
    for requirement in read_requirements(sum(EXTRAS.values(), PROJECT["project"]["dependencies"])):
        if canonicalize_name(requirement.name) != canonicalize_name(PROJECT["project"]["name"]):
            pin = PINS[canonicalize_name(requirement.name)]
            (exact,) = pin.specifier
            assert exact.operator == "=="
            assert pin.marker is None or requirement.marker == pin.marker
            assert requirement.specifier.contains(exact.version.replace("*", "0")), f"{pin} is not in {requirement}"
    assert not any(pin.extras for pin in PINS.values()), "a constraint cannot have extras"


def test_the_suite_has_one_version() -> None:
    for name in ("requirements.txt", "docs/INSTALL.md"):
        named = re.findall(r"--no-deps dm_control(\S*?)[`\s]", (ROOT / name).read_text(encoding="utf-8"))
        assert set(named) == {str(PINS["dm-control"].specifier)}


def test_every_module_is_in_the_package() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in MODULES} - LEFT_OUT
    packages = {name.rstrip("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    modules = {f"{name}.py" for name in PROJECT["tool"]["setuptools"]["py-modules"]}
    assert names == modules | packages - {"config", "policies"}
