"""The environments that a run's settings describe, for training and for evaluation."""

from functools import partial
from typing import Any, get_args

from hydra.utils import instantiate

from run import machine
from run.evaluator import MakeEnv
from settings.check import ONLY_IN, Place, Settings

PLACES: tuple[Place, ...] = get_args(Place)


def env_maker(cfg: Settings, place: Place, films: bool = False) -> MakeEnv:
    """What makes an environment, given whether it will be rendered.

    Args:
        place: what it is for; some wrappers belong to one of them alone.
        films: whether anything will be rendered in this process (see run.machine.import_envs).
    """
    env_module, _ = machine.import_envs(machine.wants_opengl(cfg.env, films))
    nodes = [node for node in cfg.env_wrappers if node.get(ONLY_IN, place) == place]
    wrappers = [_wrapper(node) for node in nodes]
    return partial(
        env_module.make_env, cfg.env, cfg.seed, cfg.action_repeat, kwargs=dict(cfg.env_kwargs), wrappers=wrappers
    )


def is_as_registered(cfg: Settings) -> bool:
    """Whether an evaluation's rewards are those of the task that goes by that name."""
    return not any(node.get(ONLY_IN) != "training" for node in cfg.env_wrappers)


def _wrapper(node: dict[str, Any]) -> Any:
    """A factory that wants an environment."""
    return instantiate({key: value for key, value in node.items() if key != ONLY_IN}, _convert_="all")
