"""Functions in configurations, such as `${product:5000,${action_repeat}}`."""

from contextlib import suppress
from importlib import import_module
from typing import Any

from omegaconf import OmegaConf

EPISODE_LENGTH = 1000  # steps, of the suite's tasks and of environments without a limit of their own


def product(a: Any, b: Any) -> Any:
    """a * b, of positive numbers; 1 for others, which are refused as the values of their own keys."""
    return a * b if all(isinstance(value, int | float) and value > 0 for value in (a, b)) else 1


def quotient(a: Any, b: Any) -> Any:
    """a / b, likewise."""
    return a / b if all(isinstance(value, int | float) and value > 0 for value in (a, b)) else 1


def smaller(a: Any, b: Any) -> Any:
    """min(a, b)."""
    return min(a, b)


def discount_of_length(env: Any, env_kwargs: Any, action_repeat: Any) -> float:
    """clip(1 - 5 / T, 0.95, 0.995), T decisions in an episode: TD-MPC2's rule (arXiv 2310.16828), in SimBa and XQC.

    The arguments are the values of these keys. Wrong ones give a discount, too: they are refused where they are used.
    An episode has `env_kwargs.max_episode_steps`, or the limit that the id is registered with.
    """
    repeat = action_repeat if isinstance(action_repeat, int | float) and action_repeat >= 1 else 1
    length = env_kwargs.get("max_episode_steps") if hasattr(env_kwargs, "get") else None
    if length is None:
        length = _registered_length(str(env))
    decisions = (length if isinstance(length, int) and length > 0 else EPISODE_LENGTH) / repeat
    return min(max(1 - 5 / decisions, 0.95), 0.995)


def _registered_length(env: str) -> int | None:
    import gymnasium as gym  # imported late: few configurations need it
    from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

    module, _, env_id = env.rpartition(":")
    with suppress(Exception):  # a name or a package that does not exist is reported when the environment is made
        if module:
            import_module(module)  # registers the id
        namespace, name, version = parse_env_id(env_id)
        newest = find_highest_version(namespace, name) if version is None else version
        return gym.spec(get_env_id(namespace, name, newest)).max_episode_steps
    return None


for resolver in (product, quotient, smaller, discount_of_length):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
