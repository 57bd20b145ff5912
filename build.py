"""What a run is made of: its parts built from the settings, and tried out before anything is created."""

import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from hydra.utils import instantiate

import device_buffer
import replay_buffer
import video
import wandb_sink
from agent.execution import choose_execution
from agent.policy import UniformPolicy, load_policy
from n_step import NStep
from settings import Settings
from utils import UserError, resolve_device, set_precision

# Of (batch, width) by (width, width): target actor 1, target critics 2, critics 2 forward and 4 backward, then for the
# actor 1 forward and 2 backward through itself, 2 and 2 through the critics.
PRODUCTS_PER_UPDATE = 16

Shapes = dict[str, Any]  # what an agent's constructor is told of its environment


def identity_of(cfg: Settings, shapes: Shapes) -> dict[str, Any]:
    """What a checkpoint has to have in common with the run that loads it."""
    return {"agent": cfg.agent["name"], "_target_": cfg.agent["_target_"], "env": cfg.env, **shapes}


def shapes_of(observation_space: gym.Space, action_space: gym.Space) -> Shapes:
    """What an agent's constructor is told of a flat environment."""
    (obs_dim,), (action_dim,) = observation_space.shape or (), action_space.shape or ()
    return {"obs_dim": obs_dim, "action_dim": action_dim, "action_range": [-1.0, 1.0]}


def build_agent(cfg: Settings, shapes: Shapes, device: torch.device) -> Any:
    """The agent that `cfg.agent` describes."""
    node = {key: value for key, value in cfg.agent.items() if key != "name"}
    return instantiate(node, _convert_="all")(**shapes, device=device)


def choose_storage(cfg: Settings, shapes: Shapes, device: torch.device) -> str:
    """What `replay_storage` means for this run."""
    sizes = (shapes["obs_dim"],), (shapes["action_dim"],), cfg.replay_buffer_capacity
    return device_buffer.choose_storage(cfg.replay_storage, device, cfg.sample_with_replacement, *sizes)


def build_n_step(cfg: Settings) -> NStep:
    """What turns steps into the replay buffer's rows.

    Raises:
        UserError: for several steps and a discount that is no number.
    """
    if cfg.n_step == 1:
        return NStep(1)
    discount = cfg.agent.get("discount")
    if not isinstance(discount, float | int):
        raise UserError(
            f"n_step={cfg.n_step}: rewards are discounted as they are stored, so agent.discount has to be a number, "
            "not a schedule; choose n_step=1"
        )
    return NStep(cfg.n_step, discount)


def build_seed_policy(cfg: Settings, agent: Any, shapes: Shapes, device: torch.device) -> Any:
    """Who acts for the first `num_seed_steps`: `uniform`, the `agent`, or the policy saved in a file of that name.

    Raises:
        UserError: for a file that holds no policy of these shapes.
    """
    if cfg.seed_policy == "agent":
        return agent
    if cfg.seed_policy == "uniform":
        return UniformPolicy(shapes["action_dim"], shapes["action_range"], cfg.seed)
    policy = load_policy(cfg.seed_policy, str(device), cfg.seed)
    try:
        fits = policy.act(np.zeros(shapes["obs_dim"], np.float32)).shape == (shapes["action_dim"],)
    except RuntimeError:  # the observation's width
        fits = False
    if not fits:
        raise UserError(f"seed_policy={cfg.seed_policy}: saved for an environment of other shapes than {cfg.env}")
    return policy


def wants_opengl(cfg: Settings) -> bool:
    return cfg.save_video or cfg.env == "quadruped_escape"  # which renders its terrain while it is built


def note_if_slow(cfg: Settings, device: torch.device) -> None:
    """Says what to expect where a CPU is given a GPU's work, from the rate of the products that dominate an update."""
    batch_size, width = cfg.agent.get("batch_size", 0), cfg.agent.get("critic", {}).get("hidden_dim", 0)
    if device.type != "cpu" or batch_size * width**2 < 2**27:
        return
    x, weight = torch.zeros(batch_size, width), torch.zeros(width, width)
    torch.mm(x, weight)
    started_s = time.perf_counter()
    torch.mm(x, weight)
    steps_per_second = 1 / ((time.perf_counter() - started_s) * PRODUCTS_PER_UPDATE * cfg.updates_per_step)
    print(
        f"This agent is made for a GPU: expect about {steps_per_second:.1f} steps per second on this CPU. "
        "preset=fast learns in minutes."
    )


def check_machine(runs: list[Settings]) -> None:
    """Builds what can be wrong about the runs on this machine, and throws it away.

    Raises:
        UserError: for a device, a task or a buffer that cannot be had here.
    """
    for cfg in runs:
        set_precision(cfg.precision, resolve_device(cfg.device))
        if cfg.log_save_wandb:
            wandb_sink.require((cfg.logger["sinks"].get("wandb") or {}).get("mode"))
    video.choose_opengl(any(wants_opengl(cfg) for cfg in runs))
    import envs  # not before: dm_control reads the choice when it is imported

    for cfg in runs:
        env = envs.make_env(cfg.env, cfg.seed, cfg.action_repeat)
        shapes = shapes_of(env.observation_space, env.action_space)
        env.close()
        replay_buffer.require_memory((shapes["obs_dim"],), (shapes["action_dim"],), cfg.replay_buffer_capacity)
        agent = build_agent(cfg, shapes, torch.device("cpu"))
        build_n_step(cfg)
        device = resolve_device(cfg.device)
        choose_execution(cfg.execution, agent, device)
        if cfg.replay_storage != "auto":  # which always finds something, and would start a GPU here to look
            choose_storage(cfg, shapes, device)
        if not cfg.sample_with_replacement and agent.batch_size > cfg.replay_buffer_capacity:
            raise UserError(
                f"replay_buffer_capacity={cfg.replay_buffer_capacity}: "
                f"at least agent.batch_size={agent.batch_size} is needed without replacement"
            )
        build_seed_policy(cfg, agent, shapes, torch.device("cpu"))
