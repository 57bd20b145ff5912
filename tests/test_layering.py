"""Who may import whom."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AGENT_PARTS = {"agent"} | {
    f"agent.{part}"
    for part in (
        "actor",
        "actor_step",
        "adam",
        "batch_norm",
        "critic",
        "execution",
        "exploration",
        "heads",
        "layers",
        "losses",
        "mlp",
        "networks",
        "normalise",
        "off_policy",
        "policy",
        "recording",
        "schedule",
        "temperature",
    )
}
MAY_IMPORT = {
    "utils": set(),
    "video": set(),
    "dmc2gym": {"dmc2gym"},
    "replay_buffer": {"utils"},
    "n_step": {"utils"},
    "device_buffer": {"replay_buffer", "utils"},
    "log_sinks": {"utils"},
    "logger": {"log_sinks", "utils"},
    "wandb_sink": {"log_sinks", "utils"},
    "settings": {"utils"},
    "segments": {"utils"},
    "checkpoint": {"segments", "utils"},
    "run_folder": {"utils"},
    "stopping": {"utils"},
    "run_state": {"checkpoint", "run_folder", "utils"},
    "resume": {"checkpoint", "cli", "settings", "utils"},
    "evaluate": {"build", "checkpoint", "envs", "evaluator", "resume", "train", "utils", "video"},
    "build": {
        *("device_buffer", "envs", "n_step", "replay_buffer", "settings", "utils", "video", "wandb_sink"),
        *("agent.execution", "agent.policy"),
    },
    "envs": {"dmc2gym", "utils"},
    "evaluator": {"utils", "video"},
    "launchers": {"utils"},
    "own_process": {"train", "utils"},
    "sweep": {"launchers", "own_process", "run_folder", "settings", "utils"},
    "cli": {"launchers", "run_folder", "settings", "tuning", "utils"},
    "tuning": {"run_folder", "utils"},
    "agent": AGENT_PARTS | {"utils"},
    "study": {"study", "utils"},
    "plot": {"study", "utils"},
    "job": {"checkpoint", "cli", "resume", "run_folder", "settings", "sweep"},
    "train": {
        "build",
        "checkpoint",
        "cli",
        "device_buffer",
        "envs",
        "evaluator",
        "job",
        "logger",
        "plot",
        "run_folder",
        "run_state",
        "settings",
        "stopping",
        "train",
        "utils",
        "video",
        "agent.execution",
    },
}
FILES = sorted([*ROOT.glob("*.py"), *ROOT.glob("agent/*.py"), *ROOT.glob("dmc2gym/*.py"), *ROOT.glob("study/*.py")])
OURS = {path.stem for path in ROOT.glob("*.py")} | {"agent", "dmc2gym", "study", "tests", "benchmarks"}


def imports(path: Path) -> set[str]:
    """Dotted names of every module that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in submodules if (ROOT / f"{name.replace('.', '/')}.py").exists()} or {
                str(node.module)
            }
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_layer_may(path: Path) -> None:
    layer = path.parent.name if path.parent != ROOT else path.stem
    ours = {name for name in imports(path) if name.split(".")[0] in OURS}
    wrong = {
        name
        for name in ours
        if name not in MAY_IMPORT[layer] and name.split(".")[0] not in MAY_IMPORT[layer] - {"agent"}
    }
    assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize("path", sorted(ROOT.glob("agent/*.py")), ids=lambda path: path.name)
def test_agents_know_torch_and_nothing_of_the_framework_around_them(path: Path) -> None:
    theirs = {name.split(".")[0] for name in imports(path)} - OURS
    assert theirs <= {
        "abc",
        "collections",
        "contextlib",
        "copy",
        "functools",
        "importlib",
        "itertools",
        "math",
        "pathlib",
        "typing",
        "annotated_types",
        "numpy",
        "torch",
    }
