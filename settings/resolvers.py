"""Functions in configurations, such as `${product:5000,${action_repeat}}`."""

from contextlib import suppress
from importlib import import_module
from typing import Any

from omegaconf import OmegaConf

EPISODE_LENGTH = 1000  # steps: in the suite's tasks, and assumed for environments without a time limit


def product(a: Any, b: Any) -> Any:
    """Returns a * b for positive numbers; 1 for other values, which are refused where their own keys are checked."""
    return a * b if all(isinstance(value, int | float) and value > 0 for value in (a, b)) else 1


def quotient(a: Any, b: Any) -> Any:
    """Returns a / b for positive numbers; 1 for other values, as `product`."""
    return a / b if all(isinstance(value, int | float) and value > 0 for value in (a, b)) else 1


def smaller(a: Any, b: Any) -> Any:
    """Returns min(a, b)."""
    return min(a, b)


def discount_of_length(env: Any, env_kwargs: Any, action_repeat: Any) -> float:
    """Returns clip(1 - 5 / T, 0.95, 0.995) for episodes of T decisions, as in TD-MPC2 (arXiv 2310.16828), SimBa, XQC.

    The arguments are the values of the keys of these names. For wrong values it returns a discount too: they are
    refused where they are used. T follows from `env_kwargs.max_episode_steps`, or the limit registered with the id.
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
