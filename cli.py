"""The command line, checked before anything is created: a mistake is one line on standard error and exit code 2."""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.errors import HydraException, MissingConfigException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import launchers
import run_folder
import settings
from settings import Settings
from utils import RunError, Stopped, UserError

CONFIG_DIR = Path(__file__).resolve().parent / "config"
EXIT_USER_ERROR, EXIT_STOPPED, EXIT_INTERRUPTED = 2, 3, 130
AUTO = "auto"

OmegaConf.register_new_resolver("slug", lambda text: str(text).replace("/", "_").replace(":", "_"), replace=True)
OmegaConf.register_new_resolver("runs_at_once", launchers.runs_at_once, replace=True)


def run(
    hydra_main: Callable[[], Any],
    check_machine: Callable[[list[Settings]], None],
    continue_run: Callable[[Path, list[str], str | None], Any],
) -> int:
    """Runs a Hydra entry point and turns what ends it into an exit code.

    Args:
        hydra_main: the function that `hydra.main` decorated.
        check_machine: raises UserError if runs with these settings could not start here.
        continue_run: continues the run in a folder, with overrides of the configuration of a name.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach us instead of being summed up by Hydra
    try:
        argv, resume = take_resume(sys.argv[1:])
        there = _begun(argv) if resume == AUTO else (Path(resume), argv, None) if resume else None
        if there:
            continue_run(*there)
        else:
            sys.argv[1:] = preflight(argv, check_machine, resume == AUTO)
            folder = _sweep_folder(sys.argv[1:])
            if folder is None:
                hydra_main()
            else:
                run_sweep(hydra_main, folder)
    except (UserError, RunError) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return EXIT_USER_ERROR if isinstance(error, UserError) else EXIT_STOPPED
    except Stopped as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        return stopped.exit_code
    except KeyboardInterrupt as interrupt:
        print(f"\n{str(interrupt) or 'interrupted before training began'}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def run_sweep(hydra_main: Callable[[], Any], folder: Path) -> None:
    """Runs a sweep to its end, and says what failed in it.

    Raises:
        RunError: if anything did; the message has a line for each.
    """
    paths = [str(CONFIG_DIR.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for workers that start elsewhere
    before = run_folder.failures(folder)
    broke_off = []
    try:
        hydra_main()
    except Exception as error:  # not a run's, but the launcher's or the sweeper's
        if str(error) in ("Record does not exist.", "No trials are completed yet."):  # Optuna's, of the best trial
            raise RunError("every trial failed; the lines above say why") from None
        if not isinstance(error, UserError | RunError):
            traceback.print_exc()
        broke_off = [f"the sweep broke off: {_one_line(error) or type(error).__name__}"]
    # A trial that failed is one of a study's results.
    failed = [] if (folder / "tuning.yaml").exists() else run_folder.new_failures(folder, before)
    if broke_off or failed:
        count = [f"{len(failed)} of the sweep's runs failed:"] if failed else []
        again = f"what is missing is done by the same command with resume={AUTO} hydra.sweep.dir={folder}"
        raise RunError("\n  ".join([*broke_off, *count, *failed, again]))


def take_resume(argv: list[str]) -> tuple[list[str], str | None]:
    """Takes `resume=` off the command line: Hydra cannot parse a folder's name with `=`, `,` or `(` in it.

    Returns:
        The other arguments, and what to resume: a run's folder, `auto`, or None.

    Raises:
        UserError: for two of them, none behind the sign, or a folder together with what only a new run can have.
    """
    found = [argument.partition("=")[2] for argument in argv if argument.startswith("resume=")]
    rest = [argument for argument in argv if not argument.startswith("resume=")]
    if not found:
        return rest, None
    if len(found) > 1 or not found[0]:
        raise UserError("resume=: a run's folder goes here, or auto")
    if found[0] != AUTO:
        for argument in rest:
            if argument.startswith(("-", "hydra.", "hydra/", "+hydra", "~")):
                raise UserError(f"{argument}: not with resume=<folder>, which continues that one run in its own folder")
    return rest, found[0]


def _begun(argv: list[str]) -> tuple[Path, list[str], str | None] | None:
    """For `resume=auto` of one run: its folder, the overrides and the configuration's name, if it has a checkpoint."""
    args = get_args_parser().parse_args(argv)
    base = _overrides(args)
    if args.multirun or not any(override.key_or_group == "hydra.run.dir" for override in parse(base)):
        return None
    config = compose_config(args.config_name or "train", base)
    folder = Path(config.hydra.run.dir)
    if str(config.hydra.mode) == "RunMode.MULTIRUN" or not any(folder.glob("checkpoints/step_*")):
        return None
    return folder, [text for text in base if not text.startswith("hydra.run.")], args.config_name


def _overrides(args: Any) -> list[str]:
    """The overrides given, a folder of configurations of one's own among them."""
    added = [f"hydra.searchpath=[file://{Path(args.config_dir).resolve()}]"] if args.config_dir else []
    return [*args.overrides, *added]


def preflight(
    argv: list[str], check_machine: Callable[[list[Settings]], None], may_continue: bool = False
) -> list[str]:
    """Composes and checks the configuration of every run asked for, and claims the output folder.

    Args:
        may_continue: whether what is in the folder may be continued (`resume=auto`); it has to be named then.

    Returns:
        The arguments for Hydra, with the claimed folder.

    Raises:
        UserError: at the first mistake.
    """
    args = get_args_parser().parse_args(argv)
    if args.help or args.hydra_help or args.shell_completion:
        return argv
    base = _overrides(args)
    config_name = args.config_name or "train"
    parsed = parse(base)
    for override in parsed:
        moved = settings.new_path(override.key_or_group)
        if moved:
            raise UserError(f"{override.key_or_group}: that is called {moved} here")
    if args.cfg or args.info:
        compose_config(config_name, base)  # for its error, if it has one
        return argv
    configs = [compose_config(config_name, _variants(parsed, base)[0])]
    config = configs[0]
    sweeping = args.multirun or str(config.hydra.mode) == "RunMode.MULTIRUN"
    tunes = sweeping and str(config.hydra.sweeper.get("_target_")).endswith(".OptunaSweeper")
    ranges = {}
    if sweeping:
        base = [*_preset_sweep(config, parsed), *base]
        every = parse(base)
        ranges = {o.get_key_element(): str(o.input_line).partition("=")[2] for o in every if o.is_sweep_override()}
        if tunes:
            os.environ.setdefault("SQLALCHEMY_SILENCE_UBER_WARNING", "1")  # Optuna wants the version that is pinned
            import tuning  # not before: Optuna is optional

            tuning.require(config.hydra.sweeper, ranges)
        configs = [compose_config(config_name, overrides) for overrides in _variants(every, base, tunes)]
    elif any(override.is_sweep_override() for override in parsed):
        compose_config(config_name, base)  # for its error
    check_machine([settings.check(plain(config)) for config in configs])
    key = "hydra.sweep.dir" if sweeping else "hydra.run.dir"
    named = any(override.key_or_group == key for override in parsed)
    if may_continue and not named:
        raise UserError(f"resume={AUTO}: name the folder to look into, such as {key}=exp/my_run")
    folder = Path(OmegaConf.select(config, key))
    if sweeping and named and not may_continue and not tunes and next(folder.rglob("train.csv"), None):
        raise UserError(f"{key}={folder}: there are runs in it; choose another folder, or add resume={AUTO}")
    if sweeping:
        launchers.require(OmegaConf.to_container(config.hydra.launcher, resolve=True))  # type: ignore[arg-type]
    folder = run_folder.claim(folder, key, may_exist=named, may_continue=may_continue)
    if not sweeping:
        argv = [*argv, f"+resume={AUTO}"] if may_continue else argv
        return argv if named else [*argv, f"{key}={quoted(str(folder))}"]
    if tunes:
        left = tuning.open_study(folder, config.hydra.sweeper, ranges, plain(configs[0]), may_continue)
        argv = [*argv, f"hydra.sweeper.n_trials={left}"]
    # Subfolders are named by what differs between the runs. A run that its launcher starts again has to go on, so each
    # may; and a worker may be elsewhere, so the folder is absolute.
    fixed = [override.key_or_group for override in parsed if not override.is_sweep_override()] + ["resume"]
    fixed = [name for name in fixed if name not in _names_before(folder)]
    argv = [*argv, f"+resume={AUTO}", f"hydra.job.config.override_dirname.exclude_keys={fixed}"]
    return [*argv, f"{key}={quoted(str(folder.resolve()))}"]


def _names_before(folder: Path) -> set[str]:
    """The keys that the subfolders of an earlier sweep in this folder are named by: one value of them still names."""
    path = folder / "multirun.yaml"
    if not path.exists():
        return set()
    before = OmegaConf.load(path).hydra
    given = {override.key_or_group for override in parse(list(before.overrides.task))}
    return given - set(before.job.config.override_dirname.exclude_keys)


def _sweep_folder(argv: list[str]) -> Path | None:
    """The folder that `preflight` claimed for a sweep; None for anything else."""
    last = argv[-1] if argv else ""
    return Path(str(parse([last])[0].value())) if last.startswith("hydra.sweep.dir=") else None


def plain(config: DictConfig) -> dict[str, Any]:
    """A composed configuration as resolved Python values, without Hydra's own node.

    Raises:
        UserError: for an interpolation that leads nowhere.
    """
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    try:
        return OmegaConf.to_container(job, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise UserError(_one_line(error)) from None


def parse(overrides: list[str]) -> list[Override]:
    """Parses `key=value` and its kin; raises UserError at the first that is none."""
    try:
        return OverridesParser.create().parse_overrides(overrides)
    except HydraException as error:
        raise UserError(f"{_one_line(error).split(' See https')[0]}; an override reads key=value") from None


def _preset_sweep(config: DictConfig, parsed: list[Override]) -> list[str]:
    """What a preset sweeps, less what the command line gives values or a range of its own."""
    given = {override.get_key_element() for override in parsed}
    params = config.hydra.sweeper.get("params") or {}
    return [f"{key}={value}" for key, value in params.items() if key not in given]


def _variants(parsed: list[Override], overrides: list[str], intervals: bool = True) -> list[list[str]]:
    """One list of overrides for each swept value, with every other sweep at its first value.

    Args:
        intervals: whether what sweeps can take one; its ends are checked, and a fraction between them.
    """
    first = list(overrides)
    values: dict[int, list[str]] = {}  # by index into overrides
    for index, override in enumerate(parsed):
        if override.is_sweep_override():
            try:
                choices = override.value()
                if intervals and isinstance(choices, IntervalSweep):
                    low, high = choices.start, choices.end
                    assert low is not None and high is not None
                    whole = isinstance(low, int) and isinstance(high, int)
                    tried: Any = (low, high) if whole else (low, high, 0.6 * low + 0.4 * high)
                else:
                    tried = override.sweep_string_iterator()
                values[index] = [f"{override.get_key_element()}={value}" for value in tried]
            except HydraException as error:
                raise UserError(f"{override.input_line}: {_one_line(error)}") from None
            first[index] = values[index][0]
    return [first] + [
        [*first[:index], value, *first[index + 1 :]] for index, choices in values.items() for value in choices[1:]
    ]


def compose_config(config_name: str, overrides: list[str]) -> DictConfig:
    """Composes a configuration, Hydra's own node included.

    Raises:
        UserError: for an unknown key, choice or file.
    """
    around = get_gh_backup()  # within a job there is a Hydra already
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            try:
                _refuse_no_choice(overrides)
                return compose(config_name, overrides, return_hydra_config=True)
            except MissingConfigException as error:
                raise UserError(_missing(error)) from None
            except HydraException as error:
                raise UserError(_what_was_wrong(error, config_name, overrides)) from None
            except OmegaConfBaseException as error:
                raise UserError(_one_line(error)) from None
    finally:
        restore_gh_from_backup(around)


def _what_was_wrong(error: HydraException, config_name: str, overrides: list[str]) -> str:
    cause = error.__cause__
    key = getattr(cause, "full_key", None)
    if not key:
        return _one_line(error)
    if key.rsplit(".", 1)[-1] in settings.SUPPLIED:
        return f"{key}: it comes from the environment and the run, not from the user"
    if "not in struct" in str(cause):
        choices = [text for text in overrides if (CONFIG_DIR / text.partition("=")[0]).is_dir()]  # agent=crossq
        known = ["preset", *settings.flatten(plain(compose(config_name, choices)))]
        return f"{key}: unknown key; {settings.nearest(key, known)}"
    return f"{key}: {_one_line(cause or error)}"


def _refuse_no_choice(overrides: list[str]) -> None:
    """Hydra fails on `group/of/agent=null` with an error that names nothing."""
    for override in parse(overrides):
        group = override.key_or_group
        if "/" in group and not override.is_delete() and not override.is_sweep_override() and override.value() is None:
            choices = sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))
            raise UserError(f"{group}=null: the name of a choice goes here; there are {', '.join(choices)}")


def _missing(error: MissingConfigException) -> str:
    name = str(error.missing_cfg_file)
    if name in launchers.REQUIREMENTS:
        return f"{name.replace('er/', 'er=')}: not installed; pip install -r {launchers.REQUIREMENTS[name]}"
    group, _, choice = name.rpartition("/")
    choices = sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))
    if choices:
        return f"{group or '--config-name'}={choice}: no such choice; there are {', '.join(choices)}"
    return _one_line(error)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
