"""Every run that is asked for, checked before a folder is made."""

import argparse
import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

import replay_buffer
from agent.execution.choose import choose_execution
from launch import engines
from run import build, machine, memory
from run import folder as run_folder
from settings import saved
from settings.check import Settings, new_path
from settings.compose import AUTO, CONFIG_DIR, checked, compose_config, parse, plain, quoted, searching
from sinks import wandb as wandb_sink
from utils import UserError, one_line


def check_machine(runs: list[Settings]) -> None:
    """Builds what can be wrong about the runs on this machine, and throws it away.

    Raises:
        UserError: for a device, a task or a buffer that cannot be had here.
    """
    for cfg in runs:
        machine.set_precision(cfg.precision, machine.resolve_device(cfg.device))
        if cfg.log_save_wandb:
            wandb_sink.require((cfg.logger["sinks"].get("wandb") or {}).get("mode"))
    env_module, _ = machine.import_envs(any(machine.wants_opengl(cfg.env, cfg.save_video) for cfg in runs))
    for cfg in runs:
        env = env_module.make_env(cfg.env, cfg.seed, cfg.action_repeat)
        shapes = build.shapes_of(env.observation_space, env.action_space)
        env.close()
        if build.has_our_buffer(cfg):
            capacity = cfg.replay_buffer["capacity"]
            replay_buffer.require_memory((shapes["obs_dim"],), (shapes["action_dim"],), capacity)
        memory.require_memory(cfg, shapes, machine.resolve_device(cfg.device))
        agent = _acting_agent(cfg, shapes)
        build.build_n_step(cfg)
        execution, _ = choose_execution(cfg.execution, agent, machine.resolve_device(cfg.device))
        _check_buffer(cfg, shapes, agent, execution)
        build.build_seed_policy(cfg, agent, shapes, torch.device("cpu"))


def _acting_agent(cfg: Settings, shapes: build.Shapes) -> Any:
    """An agent that could be built, and has acted: what its parts cannot do together shows here, and not in the run."""
    done = "be built"
    try:
        agent = build.build_agent(cfg, shapes, torch.device("cpu"))
        done = "act"
        agent.act(np.zeros((1, shapes["obs_dim"]), np.float32))
        return agent
    except UserError:
        raise
    except Exception as error:  # whatever a class of the user's raises
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__} in {place.filename}:{place.lineno}: {one_line(error)}"
        raise UserError(f"agent._target_={cfg.agent['_target_']}: it cannot {done} ({said})") from error


def _check_buffer(cfg: Settings, shapes: build.Shapes, agent: Any, execution: str) -> None:
    if cfg.replay_storage != "auto":  # which always finds something, and would start a GPU here to look
        build.choose_storage(cfg, shapes, machine.resolve_device(cfg.device))
    if not build.has_our_buffer(cfg):
        build.build_replay_buffer(cfg, shapes, torch.device("cpu"), "auto", execution)
    elif not build.draws_with_replacement(cfg) and agent.batch_size > cfg.replay_buffer["capacity"]:
        raise UserError(
            f"replay_buffer_capacity={cfg.replay_buffer['capacity']}: "
            f"at least agent.batch_size={agent.batch_size} is needed without replacement"
        )


def overrides_of(args: Any) -> list[str]:
    """The overrides given, a folder of configurations of one's own among them."""
    return [*args.overrides, *([searching([Path(args.config_dir).resolve()])] if args.config_dir else [])]


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = "; options go before the first key=value, or after the last" if "=" in message else ""
        raise UserError(message + hint)


def arguments(argv: list[str]) -> Any:
    """Hydra's own options and the overrides.

    Raises:
        UserError: for an option that there is not, or one that leads nowhere.
    """
    parser = get_args_parser()
    parser.__class__ = _OneLine
    args = parser.parse_args(argv)
    if args.config_path:
        raise UserError(
            f"--config-path={args.config_path}: the configuration is this project's; "
            "--config-dir=<folder> adds one of your own"
        )
    if args.config_dir is not None and not Path(args.config_dir).is_dir():
        raise UserError(f"--config-dir={args.config_dir}: there is no such folder")
    if args.shell_completion and sum(text.partition("=")[0] in _COMPLETIONS for text in args.overrides) != 1:
        raise UserError("--shell-completion: install=bash goes after it; or uninstall= or query=, and zsh or fish")
    return args


_COMPLETIONS = ("install", "uninstall", "query")


def output_folder(config: DictConfig, key: str) -> Path:
    """The folder of a run, or of a sweep, by its key.

    Raises:
        UserError: for none, or one that is no place for runs.
    """
    folder = OmegaConf.select(config, key)
    if folder is None or not str(folder).strip():
        raise UserError(f"{key}=: the name of a folder goes here")
    if Path(str(folder)).resolve() == CONFIG_DIR.parent:
        raise UserError(f"{key}={folder}: that is this project's own folder; choose another")
    return Path(str(folder))


def prepare(
    argv: list[str],
    check_machine: Callable[[list[Settings]], None],
    may_continue: bool = False,
    trusted: Sequence[str] = (),
) -> list[str]:
    """Composes and checks the configuration of every run asked for, and claims the output folder.

    Args:
        may_continue: whether what is in the folder may be continued (`resume=auto`); it has to be named then.
        trusted: packages that what is continued there may name.

    Returns:
        The arguments for Hydra, with the claimed folder.

    Raises:
        UserError: at the first mistake.
    """
    args = arguments(argv)
    if args.help or args.hydra_help or args.shell_completion:
        return argv
    base = overrides_of(args)
    config_name = args.config_name or "train"
    parsed = parse(base)
    for override in parsed:
        moved = new_path(override.key_or_group)
        if moved:
            raise UserError(f"{override.key_or_group}: that is called {moved} here")
    if args.cfg or args.info:
        compose_config(config_name, base)  # for its error, if it has one
        return argv
    variants = _variants(parsed, base)[:1]
    config = compose_config(config_name, variants[0])
    sweeping = args.multirun or str(config.hydra.mode) == "RunMode.MULTIRUN"
    tunes = sweeping and str(config.hydra.sweeper.get("_target_")).endswith(".OptunaSweeper")
    ranges = {}
    if sweeping:
        base = [*_preset_sweep(config, parsed), *base]
        every = parse(base)
        ranges = {o.get_key_element(): str(o.input_line).partition("=")[2] for o in every if o.is_sweep_override()}
        if tunes:
            os.environ.setdefault("SQLALCHEMY_SILENCE_UBER_WARNING", "1")  # Optuna wants the version that is pinned
            from launch import tuning  # not before: Optuna is optional

            tuning.require(config.hydra.sweeper, ranges)
        variants = _variants(every, base, tunes)
    elif any(override.is_sweep_override() for override in parsed):
        compose_config(config_name, base)  # for its error
    configs = [compose_config(config_name, overrides) for overrides in variants] if sweeping else [config]
    check_machine([checked(*run) for run in zip(configs, variants, strict=True)])
    key = "hydra.sweep.dir" if sweeping else "hydra.run.dir"
    named = any(override.key_or_group == key for override in parsed)
    if may_continue and not named:
        raise UserError(f"resume={AUTO}: name the folder to look into, such as {key}=exp/my_run")
    folder = output_folder(config, key)
    if sweeping and named and not may_continue and not tunes and next(folder.rglob("train.csv"), None):
        raise UserError(f"{key}={folder}: there are runs in it; choose another folder, or add resume={AUTO}")
    if sweeping:
        engines.require(OmegaConf.to_container(config.hydra.launcher, resolve=True))  # type: ignore[arg-type]
    folder = run_folder.claim(folder, key, may_exist=named, may_continue=may_continue)
    again = [f"+resume={AUTO}", *([f"+trust=[{','.join(trusted)}]"] if trusted else [])]
    if not sweeping:
        argv = [*argv, *again] if may_continue else argv
        return argv if named else [*argv, f"{key}={quoted(str(folder))}"]
    if tunes:
        left = tuning.open_study(folder, config.hydra.sweeper, ranges, plain(configs[0]), may_continue)
        argv = [*argv, f"hydra.sweeper.n_trials={left}"]
    # Subfolders are named by what differs between the runs. A run that its launcher starts again has to go on, so each
    # may; and a worker may be elsewhere, so the folder is absolute.
    names = _names_before(folder) | {override.key_or_group for override in parsed if override.is_sweep_override()}
    fixed = [*(override.key_or_group for override in parsed), "resume", *(["trust"] if trusted else [])]
    fixed = [name for name in fixed if name not in names]
    argv = [*argv, *again, f"hydra.job.config.override_dirname.exclude_keys={fixed}"]
    return [*argv, f"{key}={quoted(str(folder.resolve()))}"]


def _names_before(folder: Path) -> set[str]:
    """The keys that the subfolders of an earlier sweep in this folder are named by: one value of them still names."""
    path = folder / "multirun.yaml"
    if not path.exists():
        return set()
    before = saved.load(path)
    try:
        given = {override.key_or_group for override in parse(list(before["hydra"]["overrides"]["task"]))}
        return given - set(before["hydra"]["job"]["config"]["override_dirname"]["exclude_keys"])
    except (KeyError, TypeError):
        raise UserError(f"{path}: not what a sweep writes") from None


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
                if not values[index]:
                    raise UserError(f"{override.input_line}: no value is left of it")
            except HydraException as error:
                raise UserError(f"{override.input_line}: {one_line(error)}") from None
            first[index] = values[index][0]
    return [first] + [
        [*first[:index], value, *first[index + 1 :]] for index, choices in values.items() for value in choices[1:]
    ]
