"""Imports go down only and never in a circle, other packages are pinned, and files and the root stay small."""

import ast
import re
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SETTINGS = ("settings.obs_spec", "settings.operating_system", "settings.types")
MAY_IMPORT: dict[str, set[str]] = {
    "utils": set(),
    "video": set(),
    "dmc2gym": set(),
    "settings": {"utils"},
    "envs": {"dmc2gym", *SETTINGS, "settings.env_ids", "utils"},
    "physics": {"envs", "utils"},
    "sinks": {"utils"},
    "replay_buffer": {"settings.operating_system", "settings.types", "utils"},
    "agent": {"replay_buffer", "settings", "utils"},
    "replay": {"replay_buffer", "settings", "utils"},
    "logger": {"settings", "sinks", "utils"},
    "study": {"envs.names", "settings", "utils"},
    "plot": {"study", "utils"},
    "export": {"agent", "envs", "run", "settings.operating_system", "study", "utils", "video"},
    "run": {"agent", "envs", "logger", "physics", "plot", "replay"} | {"replay_buffer", "settings", "utils", "video"},
    "evaluate": {"envs", "run", "settings", "utils"},
    "launch": {"envs", "run", "settings", "sinks", "utils"},
    "hydra_plugins": {"launch"},
    "train": {"launch", "run", "settings.compose", "utils"},
}
ABOVE = {"benchmarks", "examples", "tests"}  # may import anything; nothing below may import them
AGENTS_IMPORT = {"annotated_types", "numpy", "torch", *sys.stdlib_module_names}  # besides what the table says
MOST_IN_ROOT, MOST_LINES = 8, 450

SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in [
        *ROOT.glob("*.py"),
        *(file for room in MAY_IMPORT.keys() | ABOVE for file in ROOT.glob(f"{room}/**/*.py")),
    ]
}


def room(module: str) -> str:
    return module.split(".")[0]


def imported(module: str) -> set[str]:
    """What a module imports anywhere in its code: our modules by dotted name, others by top-level name."""
    found = set()
    for node in ast.walk(ast.parse(SOURCES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{SOURCES[module]}:{node.lineno}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in SOURCES else str(node.module) for name in names}
    # Scripts and tests import their neighbours, and the scripts of benchmarks/, by their bare names.
    folders = (room(module), "benchmarks") if room(module) in ABOVE else ()
    beside = {name: path for name in found for folder in folders if (path := f"{folder}.{name}") in SOURCES}
    found = {beside.get(name, name) for name in found}
    return {name if name in SOURCES else room(name) for name in found} - {module}


@cache
def all_imports() -> dict[str, set[str]]:
    return {module: imported(module) for module in SOURCES}


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node."""

    def reached(start: str) -> set[str]:
        seen, to_see = set(), [start]
        while to_see:
            new = arrows.get(to_see.pop(), set()) - seen
            seen |= new
            to_see += new
        return seen

    reach = {node: reached(node) for node in arrows}
    found = {frozenset(other for other in reach[node] if node in reach.get(other, ())) for node in arrows}
    return sorted(sorted(circle) for circle in found if len(circle) > 1)


def wrong(allowed: dict[str, set[str]]) -> list[str]:
    """Imports from one room (top-level folder or module) into another that the table does not allow."""
    return [
        f"{SOURCES[module].relative_to(ROOT)} imports {name}"
        for module, names in all_imports().items()
        if room(module) not in ABOVE
        for name in sorted(names)
        if room(name) in allowed.keys() | ABOVE and room(name) != room(module)
        if not {name, room(name)} & allowed[room(module)]
    ]


def test_every_folder_imports_only_what_the_table_says() -> None:
    here = {path.stem for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("*/__init__.py")}
    here.add("hydra_plugins")  # other packages share this name, so it has no __init__.py
    assert here == MAY_IMPORT.keys(), "a folder or a module of the root that the table does not know"
    assert wrong(MAY_IMPORT) == []


def test_nothing_is_imported_in_a_circle() -> None:
    assert circles(MAY_IMPORT) == []
    assert circles(all_imports()) == []
    rooms: dict[str, set[str]] = {room(module): set() for module in SOURCES}
    for module, names in all_imports().items():
        rooms[room(module)] |= {room(name) for name in names} - {room(module)}
    assert circles(rooms) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_only_tests_and_benchmarks_import_the_entry() -> None:
    assert {room(module) for module, names in all_imports().items() if "train" in names} <= ABOVE


def test_agents_know_torch_and_nothing_of_the_framework_around_them() -> None:
    others = {
        module: names - SOURCES.keys() - AGENTS_IMPORT
        for module, names in all_imports().items()
        if room(module) == "agent" and module != "agent.check"  # a command, which composes an agent
    }
    assert len(others) > 20 and {module: names for module, names in others.items() if names} == {}


def test_no_algorithm_is_imported_by_another_or_by_what_they_share() -> None:
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in ROOT.glob("config/agent/*.yaml")]
    algorithms = {file["_target_"].rpartition(".")[0] for file in files if "_target_" in file}
    assert {"agent.sac", "agent.sac_v", "agent.crossq"} <= algorithms
    importing = {module: names & algorithms for module, names in all_imports().items() if room(module) == "agent"}
    assert {module: names for module, names in importing.items() if names} == {}


def test_what_is_imported_is_pinned() -> None:
    lines = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("requirements.txt", "constraints.txt"))
    pinned = {distribution(name) for name in re.findall(r"^([\w.-]+)(?:\[\w+\])?==", lines, re.M)}
    owners = {"warp": ["warp-lang"]} | packages_distributions()  # warp is installed for thorough tests only
    others = (
        set().union(*(names for module, names in all_imports().items() if room(module) not in ABOVE)) - SOURCES.keys()
    )
    loose = {
        name
        for name in others - set(sys.stdlib_module_names)
        if not pinned & {distribution(owner) for owner in owners.get(name, [name])}
    }
    assert loose == set(), "whatever is imported has a pin"


def distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_tests_import_helpers_and_no_other_tests() -> None:
    files = [path.stem for module, path in SOURCES.items() if room(module) == "tests"]
    assert len(files) == len(set(files)), "tests are imported by their bare names"
    found = {module: {name for name in names if "test_" in name} for module, names in all_imports().items()}
    assert {module: names for module, names in found.items() if names} == {}


def locale_decides(call: ast.Call) -> bool:
    """Whether a call opens a text file without naming its encoding."""
    names = {keyword.arg for keyword in call.keywords}
    modes = [
        value.value for value in (*call.args, *(k.value for k in call.keywords)) if isinstance(value, ast.Constant)
    ]
    match call.func:
        case ast.Attribute(value=ast.Name(id="os")):
            return False
        case ast.Attribute(attr="read_text" | "write_text"):
            return "encoding" not in names
        case ast.Attribute(attr="open") | ast.Name(id="open"):
            return "encoding" not in names and not any("b" in mode for mode in modes if isinstance(mode, str))
    return False


def test_text_is_utf8_whatever_the_locale() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for module, path in SOURCES.items()
        if room(module) not in ABOVE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and locale_decides(node)
    ]
    assert found == [], "name the encoding"
    calls = ("path.read_text()", "path.open('a', newline='')", "open(name)", "path.open('rb')", "os.open(name, 0)")
    parsed = [ast.parse(call, mode="eval").body for call in calls]
    assert [isinstance(call, ast.Call) and locale_decides(call) for call in parsed] == [True] * 3 + [False] * 2


def test_the_root_is_small_and_no_file_is_long() -> None:
    assert len(list(ROOT.glob("*.py"))) <= MOST_IN_ROOT
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for module, path in SOURCES.items()
        if room(module) != "tests"
    }
    assert {name for name, count in lines.items() if count > MOST_LINES} == set()
