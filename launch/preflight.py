"""Every run that is asked for, checked before a folder is made."""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from launch import launchers
from launch.request import LaunchRequest, output_folder, read
from run import build, environments, machine, memory
from run.data import buffers, preloaded
from run.env_spec import EnvSpec
from run.environments import PLACES, env_maker
from run.execution import choose_execution
from run.saving import folder as run_folder
from settings import plain_yaml
from settings.compose import AUTO, parse, plain, quoted
from settings.schema import ONLY_IN, Settings
from sinks import wandb as wandb_sink
from sinks.tensorboard import require_utf8
from utils import EnvError, UserError, one_line


def check_machine(runs: list[Settings]) -> None:
    """Builds what can be wrong about the runs on this machine, and throws it away.

    Raises:
        UserError: for a device, a task or a buffer that cannot be had here.
    """
    for cfg in runs:
        machine.set_precision(cfg.precision, machine.resolve_device(cfg.device))
        if cfg.log_save_wandb:
            wandb_sink.require((cfg.logger["sinks"].get("wandb") or {}).get("mode"))
    seen: set[str] = set()  # what was read through
    machine.import_envs(any(machine.wants_opengl(cfg.env, cfg.save_video or cfg.from_pixels) for cfg in runs))
    for cfg in runs:
        spec, own_actions = _spaces(cfg)
        buffers.require_memory(cfg, spec)
        memory.require_memory(cfg, spec, machine.resolve_device(cfg.device))
        agent = _acting_agent(cfg, spec)
        buffers.build_n_step(cfg)
        _check_preloaded(cfg, spec, own_actions, seen)
        execution, _ = choose_execution(cfg.execution, agent, machine.resolve_device(cfg.device))
        _check_buffer(cfg, spec, agent, execution)
        build.build_seed_policy(cfg, agent, spec, torch.device("cpu"))


def _spaces(cfg: Settings) -> tuple[EnvSpec, Any]:
    """The shapes of the environments to train in, which those to evaluate in have to share, and their own actions.

    One that is learned from by its rendering has to render.
    """
    environments.import_envs(cfg, films=False)
    found: list[EnvSpec] = []
    own_actions: list[Any] = []
    for place in PLACES:
        if not found or any(ONLY_IN in node for node in cfg.env_wrappers):
            env = env_maker(cfg, place)(False)
            found.append(EnvSpec.of(env))
            own_actions.append(env.get_wrapper_attr("own_actions"))
            try:
                if cfg.from_pixels:
                    env.reset(seed=cfg.seed)
            except EnvError as error:
                raise UserError(f"from_pixels=true: {error}") from error
            finally:
                env.close()
    if found[0] != found[-1]:
        said = "; in ".join(
            f"{place} {spec.obs_dim} observations and {spec.action_dim} actions"
            for place, spec in zip(PLACES, found, strict=True)
        )
        raise UserError(f"env_wrappers: with {ONLY_IN}, the environments' shapes differ: in {said}")
    return found[0], own_actions[0]


def _acting_agent(cfg: Settings, spec: EnvSpec) -> Any:
    """An agent that could be built, and has acted: what its parts cannot do together shows here, and not in the run."""
    done = "be built"
    try:
        agent = build.build_agent(cfg, spec, torch.device("cpu"))
        done = "act"
        agent.act(spec.zero_obs()[None])
        return agent
    except UserError:
        raise
    except Exception as error:  # whatever a class of the user's raises
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__} in {place.filename}:{place.lineno}: {one_line(error)}"
        raise UserError(f"agent._target_={cfg.agent['_target_']}: it cannot {done} ({said})") from error


def _check_preloaded(cfg: Settings, spec: EnvSpec, own_actions: Any, seen: set[str]) -> None:
    """Reads what is to be preloaded through; what several runs of a sweep name, once."""
    for source in preloaded.require(cfg, spec, own_actions):
        if source.label not in seen:
            source.check()
        seen.add(source.label)


def _check_buffer(cfg: Settings, spec: EnvSpec, agent: Any, execution: str) -> None:
    if cfg.replay_storage != "auto":  # which always finds something, and would start a GPU here to look
        buffers.choose_storage(cfg, spec, machine.resolve_device(cfg.device))
    if not buffers.has_our_buffer(cfg):
        buffers.build_replay_buffer(cfg, spec, torch.device("cpu"), "auto", execution, agent)
    elif not buffers.draws_with_replacement(cfg) and agent.batch_size > cfg.replay_buffer["capacity"]:
        raise UserError(
            f"replay_buffer_capacity={cfg.replay_buffer['capacity']}: "
            f"at least agent.batch_size={agent.batch_size} is needed without replacement"
        )


def prepare(
    argv: list[str],
    check_machine: Callable[[list[Settings]], None],
    may_continue: bool = False,
    trusted: Sequence[str] = (),
    asked: LaunchRequest | None = None,
) -> list[str]:
    """Composes and checks the configuration of every run asked for, and claims the output folder.

    Args:
        may_continue: whether what is in the folder may be continued (`resume=auto`); it has to be named then.
        trusted: packages that what is continued there may name.
        asked: what `read` made of `argv`, if it was called before.

    Returns:
        The arguments for Hydra, with the claimed folder.

    Raises:
        UserError: at the first mistake.
    """
    asked = asked or read(argv)
    if asked is None:
        return argv
    parsed, sweeping, tunes, config = asked.parsed, asked.sweeping, asked.tunes, asked.config
    runs = asked.settings()
    check_machine(runs)
    key = "hydra.sweep.dir" if sweeping else "hydra.run.dir"
    named = any(override.key_or_group == key for override in parsed)
    if may_continue and not named:
        raise UserError(f"resume={AUTO}: name the folder to look into, such as {key}=exp/my_run")
    folder = output_folder(config, key)
    if any(cfg.log_save_tb for cfg in runs):
        require_utf8(folder)
    if sweeping and named and not may_continue and not tunes and next(folder.rglob("train.csv"), None):
        raise UserError(f"{key}={folder}: there are runs in it; choose another folder, or add resume={AUTO}")
    if sweeping:
        launchers.require(OmegaConf.to_container(config.hydra.launcher, resolve=True))  # type: ignore[arg-type]
    folder = run_folder.claim(folder, key, may_exist=named, may_continue=may_continue)
    again = [f"+resume={AUTO}", *([f"+trust=[{','.join(trusted)}]"] if trusted else [])]
    if not sweeping:
        argv = [*argv, *again] if may_continue else argv
        return argv if named else [*argv, f"{key}={quoted(str(folder))}"]
    if tunes:
        from launch import tuning  # not before: Optuna is optional

        settings = plain(asked.configs[0])
        tuning.open_study(folder, config.hydra.sweeper.direction, asked.ranges, settings, may_continue)
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
    before = plain_yaml.load(path)
    try:
        given = {override.key_or_group for override in parse(list(before["hydra"]["overrides"]["task"]))}
        return given - set(before["hydra"]["job"]["config"]["override_dirname"]["exclude_keys"])
    except (KeyError, TypeError):
        raise UserError(f"{path}: not what a sweep writes") from None
