"""Settings in, a run's parts out: the same for a run that begins, one that goes on, and a check before either."""

import dataclasses
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from hydra.utils import get_object, instantiate

from agent.off_policy import OffPolicyAgent
from agent.policy import Policy, UniformPolicy
from agent.policy_file import load_policy
from replay.n_step import NStep
from run import environments, machine
from run.data import sources
from run.data.buffers import build_n_step, build_replay_buffer, choose_storage, draws_with_replacement
from run.data.preloaded import Preloaded
from run.env_spec import EnvSpec
from run.environments import env_maker, is_as_registered
from run.evaluation.background import BackgroundEvaluator, EvalTask, make_evaluator
from run.evaluation.evaluator import Evaluator
from run.execution import choose_execution, set_execution
from run.saving import checkpoint_writer
from settings.operating_system import keep_freed_memory
from settings.schema import Settings
from settings.signatures import parameters
from utils import UserError, one_line, set_seed_everywhere

SEED_POLICY = "seed_policy.pt"  # in the run's folder


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a run is made of.

    Attributes:
        own_evaluator: one of the user's own class; None is the project's, which takes a while to make.
        make_evaluator: the evaluator, made when it is called.
        background: evaluates in a process of its own; None where that is not wanted, or not possible.
        may_step_in_thread: whether environments may step while updates run.
        updates_from: transitions in the replay buffer before the first update.
        identity: what its checkpoints have in common with it.
        used: its settings with everything that was left to the machine, for config.yaml.
        solved_from: the mean return from which on the task counts as solved; None where it names none.
    """

    device: torch.device
    envs: SyncVectorEnv | AsyncVectorEnv
    agent: Any
    seed_policy: Any
    n_step: NStep
    replay_buffer: Any
    preloaded: Preloaded
    logger: Any
    own_evaluator: Any
    make_evaluator: Callable[[], Any]
    background: BackgroundEvaluator | None
    may_step_in_thread: bool
    updates_from: int
    identity: dict[str, Any]
    used: dict[str, Any]
    solved_from: float | None


def build(cfg: Settings, work_dir: Path) -> Parts:
    """Builds a run's parts. The order is part of what a seed means: what is built may draw random numbers.

    Raises:
        UserError: if a part cannot be built here.
    """
    device = machine.resolve_device(cfg.device)
    if cfg.num_threads is not None:
        torch.set_num_threads(cfg.num_threads)
    keep_freed_memory()
    precision = machine.set_precision(cfg.precision, device)
    set_seed_everywhere(cfg.seed)
    env_module, renders = environments.import_envs(cfg, cfg.save_video)
    films = cfg.save_video and machine.can_film(renders)
    make_env, async_envs = env_maker(cfg, "training"), environments.in_processes(cfg)
    envs = env_module.make_train_envs(partial(make_env, False), cfg.seed, cfg.num_envs, async_envs, cfg.env_timeout_s)
    spec = EnvSpec.of_spaces(envs.single_observation_space, envs.single_action_space)
    machine.note_if_slow(cfg, device)
    machine.note_if_bf16_is_slow(cfg, device)
    agent = build_agent(cfg, spec, device)
    execution, why_eager = choose_execution(cfg.execution, agent, device)
    if why_eager:
        print(why_eager)
    set_execution(agent, execution, device)
    seed_policy = build_seed_policy(cfg, agent, spec, device, work_dir)
    n_step = build_n_step(cfg)
    storage = choose_storage(cfg, spec, device)
    replay_buffer = build_replay_buffer(cfg, spec, device, storage, execution, agent)
    logger_node = _logger_node(cfg)
    logger = instantiate(logger_node, _convert_="all")(log_dir=work_dir)
    own_evaluator = None if get_object(cfg.evaluator["_target_"]) is Evaluator else make_evaluator(cfg, work_dir, films)
    agent.autocast_dtype = torch.bfloat16 if precision == "bf16" else None

    chosen = {"device": str(device), "num_threads": torch.get_num_threads(), "precision": precision}
    chosen |= {"execution": execution, "replay_storage": storage, "logger": logger_node, "async_envs": async_envs}
    return Parts(
        device=device,
        envs=envs,
        agent=agent,
        seed_policy=seed_policy,
        n_step=n_step,
        replay_buffer=replay_buffer,
        preloaded=Preloaded(cfg, spec, device, replay_buffer, envs.call("own_actions")[0], partial(build_n_step, cfg)),
        logger=logger,
        own_evaluator=own_evaluator,
        make_evaluator=(lambda: own_evaluator) if own_evaluator else partial(make_evaluator, cfg, work_dir, films),
        background=_background(cfg, work_dir, films, agent, device, own_evaluator),
        may_step_in_thread=(
            execution == "recorded" and machine.has_free_core(device) and environments.may_step_elsewhere(cfg)
        ),
        updates_from=max(cfg.min_buffer_size, 1 if draws_with_replacement(cfg) else agent.batch_size),
        identity=identity_of(cfg, spec),
        used=_used(cfg, spec, chosen),
        solved_from=env_module.reward_threshold(cfg.env) if is_as_registered(cfg) else None,
    )


def _background(
    cfg: Settings, work_dir: Path, films: bool, agent: Any, device: torch.device, own_evaluator: Any
) -> BackgroundEvaluator | None:
    """What evaluates in a process of its own, where that is wanted; says so where it is not possible."""
    wanted = (
        machine.has_time_for_background(cfg, device) if cfg.eval_in_background == "auto" else cfg.eval_in_background
    )
    if not wanted:
        return None
    if own_evaluator is not None:
        obstacle = f"evaluator._target_={cfg.evaluator['_target_']} may want more than a policy"
    elif not isinstance(agent, OffPolicyAgent) or type(agent).act is not OffPolicyAgent.act:
        obstacle = f"{type(agent).__name__} acts in its own way"
    else:
        try:
            return BackgroundEvaluator(
                EvalTask(cfg, work_dir, films, str(device), agent.policy.networks, agent.policy.action_range)
            )
        except Exception as error:  # whatever pickle says of somebody's network
            obstacle = f"its networks cannot be sent to another process ({one_line(error)})"
    print(f"Training waits for evaluations: {obstacle}.")
    return None


def identity_of(cfg: Settings, spec: EnvSpec) -> dict[str, Any]:
    """What a checkpoint has to have in common with the run that loads it."""
    return {"agent": cfg.agent["name"], "_target_": cfg.agent["_target_"], "env": cfg.env, **spec.agent_arguments()}


def build_agent(cfg: Settings, spec: EnvSpec, device: torch.device) -> Any:
    """The agent that `cfg.agent` describes.

    Raises:
        UserError: if its networks do not fit into the memory, or it does not take images.
    """
    return agent_of({key: value for key, value in cfg.agent.items() if key != "name"}, spec.agent_arguments(), device)


def agent_of(node: dict[str, Any], shapes: dict[str, Any], device: torch.device) -> Any:
    """The agent that a checked node describes; as `build_agent`."""
    if "obs_shape" in shapes and "obs_shape" not in parameters(get_object(node["_target_"])):
        raise UserError(
            f"agent._target_={node['_target_']}: the observations are images {shapes['obs_shape']}, and its "
            "constructor takes no obs_shape; choose agent=drq"
        )
    try:
        return instantiate(node, _convert_="all")(**shapes, device=device)
    except (MemoryError, RuntimeError) as error:
        said = one_line(error)
        if isinstance(error, RuntimeError) and not any(word in said for word in ("alloc", "memory", "overflow")):
            raise
        raise UserError(f"agent: its networks do not fit into the memory here ({said[:100]})") from error


def build_seed_policy(
    cfg: Settings, agent: Any, spec: EnvSpec, device: torch.device, work_dir: Path | None = None
) -> Any:
    """Who acts for the first `num_seed_steps`: `uniform`, the `agent`, or the policy saved in a file of that name.

    A run keeps a copy of that file in its folder, and goes on with it, whatever has become of the file.

    Raises:
        UserError: for a file that holds no policy of these shapes.
    """
    if cfg.seed_policy == "agent":
        return agent
    if cfg.seed_policy == "uniform":
        return UniformPolicy(spec.action_dim, (-1.0, 1.0), cfg.seed)
    own = work_dir / SEED_POLICY if work_dir else None
    path = own if own and own.exists() else Path(cfg.seed_policy)
    policy = load_policy(path, str(device), cfg.seed)
    require_fit(policy, spec, f"seed_policy={path}", cfg.env)
    if own and path != own:
        part = own.with_name(f".{own.name}.part")
        checkpoint_writer.write_file(lambda to: shutil.copyfile(path, to), part)
        part.replace(own)
    return policy


def require_fit(policy: Policy, spec: EnvSpec, said: str, env: str) -> None:
    """Raises UserError, which `said` begins, for a policy that cannot act in this environment."""
    try:
        fits = policy.act(spec.zero_obs()).shape == (spec.action_dim,)
    except Exception:  # another width, vectors where images are, half a policy of a stranger's
        fits = False
    if not fits:
        raise UserError(f"{said}: saved for an environment of other shapes than {env}")


def _logger_node(cfg: Settings) -> dict[str, Any]:
    """The logger's settings, less the sinks that are switched off."""
    switched_off = {} if cfg.log_save_tb else {"tensorboard": None}
    switched_off |= {} if cfg.log_save_wandb else {"wandb": None}
    return cfg.logger | {"sinks": cfg.logger["sinks"] | switched_off}


def _used(cfg: Settings, spec: EnvSpec, chosen: dict[str, Any]) -> dict[str, Any]:
    used = dataclasses.asdict(cfg) | chosen
    used["agent"] = {"name": cfg.agent["name"], **spec.agent_arguments(), **used["agent"]}
    if cfg.seed_policy not in ("agent", "uniform"):
        used["seed_policy"] = str(Path(cfg.seed_policy).resolve())
    used["preload"] = sources.named(cfg.preload) or None
    return used
