"""What pip and uv read: named extras exist, pins are complete and within their ranges, and nothing is left out."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envs.make import INSTALL_SUITE

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]


def requirements(lines: list[str]) -> list[Requirement]:
    return [Requirement(line.partition(" #")[0]) for line in lines if line.strip() and line[0] not in "#-"]


PINS = {
    canonicalize_name(pin.name): pin
    for name in ("requirements.txt", "constraints.txt")
    for pin in requirements((ROOT / name).read_text(encoding="utf-8").splitlines())
}


HIDDEN_OR_MADE = re.compile(r"(\.(?!github)|exp/|.*__pycache__|.*\.egg-info|build/)")


def files() -> list[str]:
    """The project's files, without hidden and generated ones."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        folders[:] = [name for name in folders if not HIDDEN_OR_MADE.match(f"{here / name}/")]
        found += [str(here / name) for name in names if not HIDDEN_OR_MADE.match(str(here / name))]
    return found


def test_an_extra_that_a_message_or_a_page_names_exists() -> None:
    texts = [name for name in files() if name.endswith((".py", ".md", ".yaml", ".yml", ".txt")) or name == "Makefile"]
    named = {
        extra
        for name in texts
        for names in re.findall(r"\.\[([a-z0-9,]+)\]'", (ROOT / name).read_text(encoding="utf-8"))
        for extra in names.split(",")
    }
    assert {"box2d", "data", "dev", "export", "joblib", "optuna", "ray", "slurm", "wandb"} <= named <= EXTRAS.keys()


def test_whatever_is_required_has_an_exact_pin_within_its_range() -> None:
    wanted = requirements([line for lines in [PROJECT["project"]["dependencies"], *EXTRAS.values()] for line in lines])
    for requirement in wanted:
        if canonicalize_name(requirement.name) != canonicalize_name(PROJECT["project"]["name"]):
            pin = PINS[canonicalize_name(requirement.name)]
            (exact,) = pin.specifier
            assert exact.operator == "=="
            assert pin.marker is None or requirement.marker == pin.marker
            assert requirement.specifier.contains(exact.version.replace("*", "0")), f"{pin} is not in {requirement}"
    assert not any(pin.extras for pin in PINS.values()), "a constraint cannot have extras"


def test_the_suite_has_one_version() -> None:
    pin = str(PINS["dm-control"].specifier)
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("requirements.txt", "docs/INSTALL.md")]
    for text in [INSTALL_SUITE, *texts]:
        assert set(re.findall(r"--no-deps dm_control(\S*?)[`\s]", f"{text}\n")) == {pin}
    assert PROJECT["dependency-groups"]["suite"] == ["dm_control>=1.0.50,<1.1"]


def test_every_module_is_in_the_package() -> None:
    left_out = {"benchmarks", "docs", "examples", "studies", "tests"}
    modules = {name for name in files() if name.endswith(".py") and name.split("/")[0] not in left_out}
    packages = {name.rstrip("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert {name.split("/")[0] for name in modules if "/" in name} == packages - {"config", "policies"}
    assert {name.removesuffix(".py") for name in modules if "/" not in name} == set(
        PROJECT["tool"]["setuptools"]["py-modules"]
    )


def test_a_package_of_ones_own_may_have_files_of_the_same_names(tmp_path: Path) -> None:
    package = tmp_path / "my_project"
    package.mkdir()
    for name in ("__init__", "utils", "logger"):
        (package / f"{name}.py").write_text("MINE = True\n", encoding="utf-8")
    lines = "from logger import Logger\nfrom my_project import logger, utils\nimport utils as ours\n"
    lines += "assert utils.MINE and logger.MINE and ours.UserError and Logger\n"
    (package / "main.py").write_text(lines, encoding="utf-8")
    command = [sys.executable, "-m", "my_project.main"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
