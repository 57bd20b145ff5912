"""Run folders with known returns, without training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf


def make_run(
    folder: Path,
    returns: Sequence[tuple[int, float]],
    env: str = "cheetah_run",
    seed: int = 1,
    length: int | None = None,
    agent: str = "sac",
    **settings: Any,
) -> Path:
    """Makes a run's folder with config.yaml, and with eval.csv if there are returns.

    Args:
        returns: (environment step, mean return) of each evaluation.
        length: the steps that the run was to make; by default the last evaluation's, so the run is finished.
        settings: more keys; two underscores stand for a dot.
    """
    folder.mkdir(parents=True)
    length = length or max((step for step, _ in returns), default=1)
    plain = {"env": env, "seed": seed, "experiment": "test_exp", "reward_scale": 1, "device": "cpu"}
    nodes = {
        "agent": {"name": agent, "obs_dim": len(env), "actor_lr": 1e-4, "reward_scale": 1},
        "evaluator": {"seed": seed},
    }
    config = OmegaConf.create({**plain, "num_train_steps": length, "replay_buffer_capacity": length, **nodes})
    for key, value in settings.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(config))
    rows = [f"{index},{step},{value},0,{value - 5},{value + 5},1000\n" for index, (step, value) in enumerate(returns)]
    if rows:
        header = "episode,step,episode_reward,episode_reward_std,episode_reward_min,episode_reward_max,episode_length\n"
        (folder / "eval.csv").write_text(header + "".join(rows))
    return folder
