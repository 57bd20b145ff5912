"""The seed of each episode."""

import numpy as np

# The streams of randomness that environments draw their episodes from.
TRAIN_STREAM, EVAL_STREAM = 0, 1


def episode_seed(run_seed: int, stream: int, *counters: int) -> int:
    """The seed of one episode, a function of nothing but its arguments.

    Args:
        run_seed: the run's seed, 0 or more.
        stream: TRAIN_STREAM or EVAL_STREAM; two streams share no episode.
        counters: what tells episodes of a stream apart, such as (environment index, episode number).

    Returns:
        An int in [0, 2**32), which every environment family accepts.
    """
    return int(np.random.SeedSequence([run_seed, stream, *counters]).generate_state(1)[0])
