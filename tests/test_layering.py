"""Imports go down only and never in a circle, other packages are pinned, and files and the root stay small."""

import ast
import re
import sys
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import yaml
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SETTINGS = ("settings.obs_spec", "settings.operating_system", "settings.types")
MAY_IMPORT: dict[str, set[str]] = {
    "utils": set(),
    "video": set(),
    "dmc2gym": set(),
    "settings": {"utils"},
    "envs": {"dmc2gym", *SETTINGS, "settings.env_ids", "utils"},
    "physics": {"envs", "settings.env_ids", "utils"},
    "sinks": {"utils"},
    "replay_buffer": {"settings.operating_system", "settings.types", "utils"},
    "agent": {"replay_buffer", "settings", "utils"},
    "replay": {"replay_buffer", "settings", "utils"},
    "logger": {"settings", "sinks", "utils"},
    "study": {"settings", "utils"},
    "plot": {"study", "utils"},
    "export": {"agent", "envs", "run", "settings.operating_system", "study", "utils", "video"},
    "run": {"agent", "envs", "logger", "physics", "replay"} | {"replay_buffer", "settings", "study", "utils", "video"},
    "evaluate": {"envs", "replay", "run", "settings", "utils"},
    "launch": {"envs", "run", "settings", "sinks", "utils"},
    "hydra_plugins": {"launch"},
    "train": {"launch", "run", "settings.compose", "settings.env_ids", "utils"},
}
ABOVE = {"benchmarks", "examples", "tests"}  # may import anything; nothing below may import them
AGENTS_IMPORT = {"annotated_types", "numpy", "torch", *sys.stdlib_module_names}  # besides what the table says
MOST_IN_ROOT, MOST_LINES = 8, 450

SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in [*ROOT.glob("*.py"), *(file for room in (*MAY_IMPORT, *ABOVE) for file in ROOT.glob(f"{room}/**/*.py"))]
}


def room(module: str) -> str:
    return module.split(".")[0]


def imported(module: str) -> set[str]:
    """What a module imports anywhere in its code: our modules by dotted name, others by top-level name."""
    found = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{SOURCES[module]}:{node.lineno}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in SOURCES else str(node.module) for name in names}
    return {name if name in SOURCES else room(name) for name in found} - {module}


TREES = {
    module: ast.parse(path.read_text(encoding="utf-8")) for module, path in SOURCES.items() if room(module) not in ABOVE
}
IMPORTS = {module: imported(module) for module in TREES}


def test_every_folder_imports_only_what_the_table_says() -> None:
    here = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("*/__init__.py")}
    here.add("hydra_plugins")  # other packages share this name, so it has no __init__.py
    assert here == MAY_IMPORT.keys(), "a folder or a module of the root that the table does not know"
    wrong = [
        f"{SOURCES[module].relative_to(ROOT)} imports {name}"
        for module, names in IMPORTS.items()
        for name in sorted(names)
        if room(name) in MAY_IMPORT.keys() | ABOVE and room(name) != room(module)
        if not {name, room(name)} & MAY_IMPORT[room(module)]
    ]
    assert wrong == []


def test_nothing_is_imported_in_a_circle() -> None:
    rooms: dict[str, set[str]] = {name: set() for name in MAY_IMPORT}
    for module, names in IMPORTS.items():
        rooms[room(module)] |= {room(name) for name in names} - {room(module)}
    for arrows in (IMPORTS, rooms):
        TopologicalSorter(arrows).prepare()  # a circle raises CycleError


def test_agents_know_torch_and_nothing_of_the_framework_around_them() -> None:
    others = {
        module: names - SOURCES.keys() - AGENTS_IMPORT
        for module, names in IMPORTS.items()
        if room(module) == "agent" and module != "agent.check"  # a command, which composes an agent
    }
    assert len(others) > 20 and {module: names for module, names in others.items() if names} == {}


def test_no_algorithm_is_imported_by_another_or_by_what_they_share() -> None:
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in ROOT.glob("config/agent/*.yaml")]
    algorithms = {file["_target_"].rpartition(".")[0] for file in files if "_target_" in file}
    assert {"agent.sac", "agent.sac_v", "agent.crossq"} <= algorithms
    importing = {module: names & algorithms for module, names in IMPORTS.items() if room(module) == "agent"}
    assert {module: names for module, names in importing.items() if names} == {}


def test_what_is_imported_is_pinned() -> None:
    lines = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("requirements.txt", "constraints.txt"))
    pinned = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)(?:\[\w+\])?==", lines, re.M)}
    owners = {"warp": ["warp-lang"]} | packages_distributions()  # warp is installed for thorough tests only
    others = set().union(*IMPORTS.values()) - SOURCES.keys() - set(sys.stdlib_module_names)
    loose = {name for name in others if not pinned & {canonicalize_name(owner) for owner in owners.get(name, [name])}}
    assert loose == set(), "whatever is imported has a pin"


def test_the_root_is_small_and_no_file_is_long() -> None:
    assert len(list(ROOT.glob("*.py"))) <= MOST_IN_ROOT
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for module, path in SOURCES.items()
        if room(module) != "tests"
    }
    assert {name for name, count in lines.items() if count > MOST_LINES} == set()
