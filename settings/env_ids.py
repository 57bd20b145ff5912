"""What the id of an environment means: the newest version, and the length of episodes."""

EPISODE_LENGTH = 1000  # steps: in the suite's tasks, and for environments without a limit of their own


def newest_id(env_id: str) -> str:
    """Returns an id with its version; an id without one means the newest.

    Raises:
        gymnasium.error.Error, ValueError: if it is no id.
    """
    import gymnasium as gym
    from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

    if env_id in gym.registry:
        return env_id
    namespace, name, version = parse_env_id(env_id)
    return get_env_id(namespace, name, find_highest_version(namespace, name) if version is None else version)
