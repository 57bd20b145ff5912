"""Only `files/` opens, writes, renames or loads files, except the places listed here with their reasons."""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
METHODS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "rename", "savefig", "tofile", "touch"}
FUNCTIONS = {
    *("open", "io.open", "os.open", "os.fdopen", "os.rename", "os.replace", "os.link", "os.symlink", "os.truncate"),
    *("np.save", "np.savez", "np.savetxt", "np.load", "np.loadtxt", "np.genfromtxt", "np.fromfile", "np.memmap"),
    *("torch.save", "torch.load", "torch.jit.save", "torch.jit.load", "json.load", "json.dump", "pickle.load"),
    *("OmegaConf.load", "OmegaConf.save", "h5py.File", "zipfile.ZipFile", "sqlite3.connect", "imageio.get_writer"),
    *("SummaryWriter", "wandb.init", "logging.FileHandler"),
}
MODULES = {"shutil", "tempfile"}
ONLY_DELETES_OR_LOOKS = {"shutil.rmtree", "shutil.which", "shutil.get_terminal_size"}  # rmtree follows no link
EXCEPTIONS = {
    ("agent/exported.py", "torch.jit.save"): "into memory",
    ("export.py", "torch.jit.load"): "from memory",
    ("study/figures.py", "figure.savefig"): "into a file that `files` opened",
    ("video.py", "imageio.get_writer"): "ffmpeg writes by a path, that of a new file",
    ("launch/database.py", "partial"): "SQLite, in the folder of a sweep that `files.links` has checked",
    ("sinks/tensorboard.py", "SummaryWriter"): "TensorBoard's own, in a folder that `files.links` has checked",
    ("sinks/wandb.py", "wandb.init"): "Weights & Biases' own, in a folder that `files.links` has checked",
    ("run/saving/folder.py", "tempfile.TemporaryFile"): "tries whether a folder can be written; it has no name",
    ("run/saving/folder.py", "os.open"): "a folder, held open so that no other gets its inode",
    ("settings/operating_system.py", "_CPUINFO.read_text"): "/proc",
    ("settings/operating_system.py", "read_text"): "/sys",
    ("examples/deploy.py", "path.read_bytes"): "stands alone, to be copied",
}


def opens(call: ast.Call) -> str | None:
    """Returns the called function's name if it opens, writes, renames or loads a file, otherwise None."""
    name = ast.unparse(call.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    name = method if "(" in name else name  # a method of another call's result, or of an expression
    if name in FUNCTIONS or (name.partition(".")[0] in MODULES and name not in ONLY_DELETES_OR_LOOKS):
        return name
    if any(ast.unparse(argument) in FUNCTIONS for argument in call.args):  # partial(sqlite3.connect, …)
        return name
    if method in METHODS:
        return name
    # `str.replace` takes two arguments, `Path.replace` one.
    return name if method == "replace" and len(call.args) == 1 and not call.keywords else None


def places() -> list[tuple[str, int, str]]:
    """Returns file, line and function of every such call in the product."""
    patterns = ("*.py", *(f"{package}/**/*.py" for package in [*PACKAGES, "examples"]))
    return [
        (str(path.relative_to(ROOT)), node.lineno, function)
        for pattern in patterns
        for path in ROOT.glob(pattern)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and (function := opens(node))
    ]


def test_only_the_door_opens_files() -> None:
    outside = [place for place in places() if not place[0].startswith("files/")]
    wrong = [f"{name}:{line}: {function}" for name, line, function in outside if (name, function) not in EXCEPTIONS]
    assert wrong == [], "use files/reading.py or files/writing.py"
    assert {(name, function) for name, _, function in outside} == EXCEPTIONS.keys(), "an exception that nothing needs"


def test_what_opens_a_file_is_recognised() -> None:
    calls = {
        "open(name)": "open",
        "path.open('rb')": "path.open",
        "(folder / name).read_text()": "read_text",
        "partial.replace(path)": "partial.replace",
        "torch.load(path)": "torch.load",
        "shutil.copyfile(a, b)": "shutil.copyfile",
        "partial(sqlite3.connect, path)": "partial",
        "text.replace('a', 'b')": None,
        "dataclasses.replace(cfg, seed=1)": None,
        "shutil.which('sbatch')": None,
        "json.loads(text)": None,
    }
    parsed = {text: ast.parse(text, mode="eval").body for text in calls}
    assert {text: opens(node) for text, node in parsed.items() if isinstance(node, ast.Call)} == calls
