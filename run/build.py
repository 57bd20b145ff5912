"""A run's parts from its settings: the same for a run that begins, one that continues, and a check before either."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_object, instantiate

from agent.off_policy import OffPolicyAgent, takes_tensors
from agent.policy import Policy
from agent.policy_file import load_policy
from envs.simulator import Simulator
from files.reading import read_bytes
from files.writing import write_bytes
from replay.n_step import NStep
from run import environments, machine
from run.agents import build_acting_agent, identity_of
from run.data import buffers, sources
from run.data.preloaded import Preloaded
from run.env_spec import EnvSpec, uniform_policy
from run.evaluation.background import BackgroundEvaluator, EvalTask, make_evaluator
from run.evaluation.evaluator import Evaluator
from run.execution import choose_execution, set_execution
from run.loop import LoopParts
from run.saving import checkpoint
from settings.keys import dotted
from settings.operating_system import keep_freed_memory
from settings.repetitions import name_of_group
from settings.schema import Settings
from utils import UserError, one_line, set_seed_everywhere

SEED_POLICY = "seed_policy.pt"  # in the run's folder


@dataclasses.dataclass(frozen=True)
class Parts(LoopParts):
    """What a run is made of, before it has a folder.

    Attributes:
        data: the replay buffer's rows, and the data that the run begins with.
        device: of the agent.
        films: whether evaluations are filmed.
        updates_from: transitions in the replay buffer before the first update.
        identity: what its checkpoints must have in common with it.
        used: its settings, with the choices that were left to the machine, for config.yaml.
        solved_from: mean return from which the task counts as solved; None where the task names none.
        notes: lines to print when the run begins.
    """

    envs: Any
    agent: Any
    seed_policy: Any
    n_step: NStep
    replay_buffer: Any
    data: Preloaded
    device: torch.device
    films: bool
    updates_from: int
    identity: dict[str, Any]
    used: dict[str, Any]
    solved_from: float | None
    notes: list[str]

    def close(self) -> None:
        """Ends the environments' processes."""
        self.envs.close()


@dataclasses.dataclass(frozen=True)
class Outputs:
    """What a run does in its folder, besides training and checkpoints.

    Attributes:
        logger: writes train.csv, eval.csv and the rest.
        own_evaluator: an evaluator of the user's own class; None for the project's, which is built when it is needed.
        make_evaluator: returns the evaluator of this process.
        background: evaluates in another process; None if training waits for evaluations.
    """

    logger: Any
    own_evaluator: Any
    make_evaluator: Callable[[], Any]
    background: BackgroundEvaluator | None


def build(cfg: Settings, work_dir: Path | None = None) -> Parts:
    """Builds a run's parts. Their order decides which random numbers a seed gives to whom.

    Args:
        cfg: the run's settings.
        work_dir: its folder, if it continues.

    Raises:
        UserError: if a part cannot be built here.
    """
    device = machine.resolve_device(cfg.device)
    if cfg.num_threads is not None:
        torch.set_num_threads(cfg.num_threads)
    keep_freed_memory()
    precision = machine.set_precision(cfg.precision, device)
    env_module, renders = environments.import_envs(cfg, cfg.save_video)
    if work_dir is None:
        environments.require_alike(cfg)
    set_seed_everywhere(cfg.seed)
    envs = environments.make_train_envs(cfg)
    try:
        spec = EnvSpec.of_spaces(envs.single_observation_space, envs.single_action_space)
        buffers.require_memory(cfg, spec)
        agent = build_acting_agent(cfg, spec, device, checkpoint.weight_limit(work_dir) if work_dir else None)
        execution, why_eager = choose_execution(cfg.execution, agent, device)
        set_execution(agent, execution, device)
        seed_policy = build_seed_policy(cfg, agent, spec, device, work_dir)
        n_step = buffers.build_n_step(cfg)
        storage = buffers.choose_storage(cfg, spec, device)
        if isinstance(envs, Simulator) and storage == "device" and takes_tensors(agent):
            envs.tensors_on = device
        replay_buffer = buffers.build_replay_buffer(cfg, spec, device, storage, execution, agent)
        own_actions = envs.call("own_actions")[0]
        make_n_step = partial(buffers.build_n_step, cfg)
        data = Preloaded(cfg, spec, device, replay_buffer, own_actions, make_n_step)
        agent.autocast_dtype = torch.bfloat16 if precision == "bf16" else None
        may_step_in_thread = execution == "recorded" and machine.has_free_core(device) and not hasattr(envs, "restarts")
        replaces = buffers.draws_with_replacement(cfg)
        used = {"device": str(device), "num_threads": torch.get_num_threads(), "precision": precision}
        used |= {
            "execution": execution,
            "replay_storage": storage,
            "async_envs": environments.in_processes(cfg),
            "logger": _logger_node(cfg),
        }
        return Parts(
            envs=envs,
            agent=agent,
            seed_policy=seed_policy,
            n_step=n_step,
            replay_buffer=replay_buffer,
            data=data,
            may_step_in_thread=may_step_in_thread and environments.may_step_elsewhere(cfg),
            device=device,
            films=cfg.save_video and renders,
            updates_from=max(cfg.min_buffer_size, 1 if replaces else agent.batch_size),
            identity=identity_of(cfg, spec),
            used=_used(cfg, spec, used),
            solved_from=env_module.reward_threshold(cfg.env) if environments.is_as_registered(cfg) else None,
            notes=[*machine.notes(cfg, device, renders), *filter(None, [why_eager, environments.restarts(cfg, envs)])],
        )
    except BaseException:
        envs.close()
        raise


def open_outputs(cfg: Settings, parts: Parts, work_dir: Path) -> Outputs:
    """Builds what needs the run's folder."""
    keep_seed_policy(cfg, work_dir)
    logger = instantiate(parts.used["logger"], _convert_="all")(log_dir=work_dir)
    make = partial(make_evaluator, cfg, work_dir, parts.films)
    own_evaluator = None if get_object(cfg.evaluator["_target_"]) is Evaluator else make()
    background = _background(cfg, parts, work_dir, own_evaluator)
    return Outputs(logger, own_evaluator, (lambda: own_evaluator) if own_evaluator else make, background)


def _background(cfg: Settings, parts: Parts, work_dir: Path, own_evaluator: Any) -> BackgroundEvaluator | None:
    """Evaluates in another process, where that is wanted; where it is not possible, a line says why."""
    agent, device = parts.agent, parts.device
    is_auto = cfg.eval_in_background == "auto"
    if not (machine.has_time_for_background(cfg, device) if is_auto else cfg.eval_in_background):
        return None
    if own_evaluator is not None:
        obstacle = f"evaluator._target_={cfg.evaluator['_target_']} may want more than a policy"
    elif not isinstance(agent, OffPolicyAgent) or type(agent).act is not OffPolicyAgent.act:
        obstacle = f"{type(agent).__name__} acts in its own way"
    else:
        policy = agent.policy
        try:
            task = EvalTask(cfg, work_dir, parts.films, str(device), policy.networks, policy.action_range)
            return BackgroundEvaluator(task)
        except Exception as error:  # whatever pickle says of a user's network
            obstacle = f"its networks cannot be sent to another process ({one_line(error)})"
    print(f"Training waits for evaluations: {obstacle}.")
    return None


def build_seed_policy(cfg: Settings, agent: Any, spec: EnvSpec, device: torch.device, work_dir: Path | None) -> Any:
    """What acts for the first `num_seed_steps`: `uniform`, the `agent`, or the policy in a file of that name.

    Args:
        work_dir: of a run that continues: its copy of that file is read, and nothing outside of the folder.

    Raises:
        UserError: for a file that holds no policy of these shapes, or a copy that is missing.
    """
    if cfg.seed_policy == "agent":
        return agent
    if cfg.seed_policy == "uniform":
        return uniform_policy(spec, cfg.seed)
    path = work_dir / SEED_POLICY if work_dir else Path(cfg.seed_policy)
    if work_dir and not path.exists():
        raise UserError(f"{path}: missing; it was a copy of seed_policy={cfg.seed_policy}, so copy that to this place")
    policy = load_policy(path, str(device), cfg.seed)
    require_fit(policy, spec, f"seed_policy={path}", cfg.env)
    return policy


def keep_seed_policy(cfg: Settings, work_dir: Path) -> None:
    """Copies the file of a seed policy into the run's folder, if it is not there."""
    copied = work_dir / SEED_POLICY
    if cfg.seed_policy not in ("agent", "uniform") and not copied.exists():
        write_bytes(copied, read_bytes(Path(cfg.seed_policy), inside=0))


def require_fit(policy: Policy, spec: EnvSpec, said: str, env: str) -> None:
    """Raises UserError, which begins with `said`, for a policy that cannot act in this environment."""
    try:
        action, is_discrete = policy.act(spec.zero_obs()), spec.num_actions is not None
        fits = action.shape == spec.action_shape and is_discrete == (action.dtype.kind == "i")
        fits = fits and not (is_discrete and tuple(policy.action_range) != spec.action_range)
    except Exception:  # another width, vectors where images are, half a policy in an untrusted file
        fits = False
    if not fits:
        raise UserError(f"{said}: saved for an environment of other shapes than {env}")


def _logger_node(cfg: Settings) -> dict[str, Any]:
    """The logger's settings, without the sinks that are switched off, and with a group for Weights & Biases."""
    switched_off = {} if cfg.log_save_tb else {"tensorboard": None}
    switched_off |= {} if cfg.log_save_wandb else {"wandb": None}
    sinks = cfg.logger["sinks"] | switched_off
    wandb = sinks.get("wandb")
    if wandb and wandb.get("group", "") is None:
        sinks["wandb"] = wandb | {"group": name_of_group(dotted(dataclasses.asdict(cfg)))}
    return cfg.logger | {"sinks": sinks}


def _used(cfg: Settings, spec: EnvSpec, chosen: dict[str, Any]) -> dict[str, Any]:
    """The settings with what was chosen here, and absolute names of files."""
    used = dataclasses.asdict(cfg) | chosen
    used["agent"] = {"name": cfg.agent["name"], **spec.agent_arguments(), **used["agent"]}
    if cfg.seed_policy not in ("agent", "uniform"):
        used["seed_policy"] = str(Path(cfg.seed_policy).resolve())
    used["preload"] = sources.named(cfg.preload) or None
    return used
