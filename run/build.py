"""A run's parts from its settings: the same for a run that begins, one that continues, and a check before either."""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from agent.off_policy import OffPolicyAgent, takes_tensors
from agent.policy import Policy
from agent.policy_file import load_policy
from envs.simulator import Simulator
from replay.n_step import NStep
from run import environments, machine
from run.agents import build_acting_agent, identity_of
from run.data import buffers, sources
from run.data.preloaded import Preloaded
from run.env_spec import EnvSpec
from run.evaluation.background import BackgroundEvaluator
from run.execution import choose_execution, set_execution
from run.loop import LoopParts
from run.saving import checkpoint
from settings.keys import dotted
from settings.operating_system import keep_freed_memory
from settings.repetitions import name_of_group
from settings.schema import ONLY_IN, Settings
from utils import UserError, one_line, set_seed_everywhere

SEED_POLICY = "seed_policy.pt"  # in the run's folder
STEPS_WORTH_A_PROCESS = 10_000  # a shorter run gains nothing from evaluating in the background


@dataclasses.dataclass(frozen=True)
class Parts(LoopParts):
    """Holds a run's parts, before it has a folder.

    Attributes:
        films: whether evaluations are filmed.
        updates_from: transitions in the replay buffer before the first update.
        identity: values that its checkpoints must match (see run.agents.identity_of).
        used: its settings for config.yaml, with automatic choices such as the device resolved.
        solved_from: mean return from which the task counts as solved; None if the task defines none.
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


def build(cfg: Settings, work_dir: Path | None = None) -> Parts:
    """Builds a run's parts. The order determines which random numbers each part draws for a given seed.

    Args:
        work_dir: the run's folder, if the run is resumed.

    Raises:
        UserError: if a part cannot be built on this machine.
    """
    device = machine.resolve_device(cfg.device)
    if cfg.num_threads is not None:
        torch.set_num_threads(cfg.num_threads)
    keep_freed_memory()
    precision = machine.set_precision(cfg.precision, device)
    env_module, renders = environments.import_envs(cfg, cfg.save_video)
    set_seed_everywhere(cfg.seed)
    envs = environments.make_train_envs(cfg)
    try:
        spec = EnvSpec.of_spaces(envs.single_observation_space, envs.single_action_space)
        own_actions = envs.call("own_actions")[0]
        if work_dir is None:
            environments.require_alike(cfg, spec, own_actions)
        buffers.require_memory_for_batch(cfg, spec)
        agent = build_acting_agent(cfg, spec, device, checkpoint.weight_limit(work_dir) if work_dir else None)
        execution, why_eager = choose_execution(cfg.execution, agent, device)
        set_execution(agent, execution, device)
        seed_policy = build_seed_policy(cfg, agent, spec, device, work_dir)
        n_step = buffers.build_n_step(cfg)
        storage = buffers.choose_storage(cfg, spec, device)
        if isinstance(envs, Simulator) and storage == "device" and takes_tensors(agent):
            envs.tensors_on = device
        replay_buffer = buffers.build_replay_buffer(cfg, spec, device, storage, execution, agent)
        data = Preloaded(cfg, spec, device, replay_buffer, own_actions)
        agent.autocast_dtype = torch.bfloat16 if precision == "bf16" else None
        may_step_in_thread = execution == "recorded" and machine.has_free_core(device) and not hasattr(envs, "restarts")
        chosen = {
            "device": str(device),
            "num_threads": torch.get_num_threads(),
            "precision": precision,
            "execution": execution,
            "replay_storage": storage,
            "async_envs": environments.in_processes(cfg),
        }
        no_videos = [environments.why_no_videos(cfg.env)] if cfg.save_video and not renders else []
        notes = [*no_videos, *environments.notes(cfg), *machine.notes(cfg, device), *([why_eager] if why_eager else [])]
        if getattr(envs, "restarts", False) and cfg.checkpoint_frequency:
            lacks = "it has no state_dict and load_state_dict, so a resumed run begins its episodes anew"
            notes.append(f"env={cfg.env}: {lacks}")
        # Wrappers may change the rewards, so that the registered task's threshold no longer applies.
        is_as_registered = all(node.get(ONLY_IN) == "training" for node in cfg.env_wrappers)
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
            updates_from=max(cfg.min_buffer_size, 1 if buffers.draws_with_replacement(cfg) else agent.batch_size),
            identity=identity_of(cfg, spec),
            used=_used(cfg, spec, chosen),
            solved_from=env_module.reward_threshold(cfg.env) if is_as_registered else None,
            notes=notes,
        )
    except BaseException:
        envs.close()
        raise


def background_evaluator(cfg: Settings, parts: Parts, work_dir: Path, own_evaluator: Any) -> BackgroundEvaluator | None:
    """Returns an evaluator in another process; None if it is not wanted or, with a printed reason, not possible."""
    agent, device = parts.agent, parts.device
    pays = machine.has_free_core(device) and cfg.num_train_steps >= STEPS_WORTH_A_PROCESS
    if not (pays if cfg.eval_in_background == "auto" else cfg.eval_in_background):
        return None
    if own_evaluator is not None:
        obstacle = f"evaluator._target_={cfg.evaluator['_target_']} may want more than a policy"
    elif not isinstance(agent, OffPolicyAgent) or type(agent).act is not OffPolicyAgent.act:
        obstacle = f"{type(agent).__name__} acts in its own way"
    else:
        try:
            return BackgroundEvaluator(cfg, work_dir, parts.films, agent.policy)
        except Exception as error:  # pickling a user's network can raise anything
            obstacle = f"its networks cannot be sent to another process ({one_line(error)})"
    print(f"Training waits for evaluations: {obstacle}.")
    return None


def build_seed_policy(cfg: Settings, agent: Any, spec: EnvSpec, device: torch.device, work_dir: Path | None) -> Any:
    """Returns what acts for the first `num_seed_steps`: a `uniform` policy, the `agent`, or the policy in a file.

    Args:
        work_dir: the folder of a resumed run: its copy of the file is read, and nothing outside of the folder.
    """
    if cfg.seed_policy == "agent":
        return agent
    if cfg.seed_policy == "uniform":
        return spec.uniform_policy(cfg.seed)
    path = work_dir / SEED_POLICY if work_dir else Path(cfg.seed_policy)
    if work_dir and not path.exists():
        raise UserError(f"{path}: missing; it was a copy of seed_policy={cfg.seed_policy}, so copy that to this place")
    try:
        policy = load_policy(path, str(device), cfg.seed)
    except UserError as error:
        raise UserError(f"seed_policy={error}; uniform, agent or the file of a saved policy goes here") from None
    require_fit(policy, spec, f"seed_policy={path}", cfg.env)
    return policy


def require_fit(policy: Policy, spec: EnvSpec, said: str, env: str) -> None:
    """Raises UserError, prefixed with `said`, if a policy cannot act in this environment."""
    try:
        action, is_discrete = policy.act(spec.zero_obs()), spec.num_actions is not None
        fits = action.shape == spec.action_shape and is_discrete == (action.dtype.kind == "i")
        fits = fits and not (is_discrete and tuple(policy.action_range) != spec.action_range)
    except Exception:  # another width, vectors instead of images, an incomplete policy in an untrusted file
        fits = False
    if not fits:
        raise UserError(f"{said}: saved for an environment of other shapes than {env}")


def _used(cfg: Settings, spec: EnvSpec, chosen: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings with the automatic choices and absolute paths; sinks that are off are None."""
    used = dataclasses.asdict(cfg) | chosen
    is_off = {"tensorboard": not cfg.log_save_tb, "wandb": not cfg.log_save_wandb}
    sinks = used["logger"]["sinks"]
    sinks |= {name: None for name, off in is_off.items() if off}
    if sinks.get("wandb") and sinks["wandb"].get("group", "") is None:
        sinks["wandb"]["group"] = name_of_group(dotted(dataclasses.asdict(cfg)))
    used["agent"] = {"name": cfg.agent["name"], **spec.agent_arguments(), **used["agent"]}
    if cfg.seed_policy not in ("agent", "uniform"):
        used["seed_policy"] = str(Path(cfg.seed_policy).resolve())
    used["preload"] = sources.named(cfg.preload) or None
    return used
