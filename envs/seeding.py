"""The seed of each episode."""

import numpy as np

# Streams of randomness: what environments draw the episodes of training and of evaluation from, and what the noise of
# sampled actions in evaluations comes from.
TRAIN_STREAM, EVAL_STREAM, EVAL_ACTIONS_STREAM = 0, 1, 2


def episode_seed(run_seed: int, stream: int, *counters: int) -> int:
    """The seed of one episode, or of an evaluation's actions, a function of nothing but its arguments.

    Args:
        run_seed: the run's seed, 0 or more.
        stream: one of the above; two streams share no episode.
        counters: what tells episodes of a stream apart, such as (environment index, episode number).

    Returns:
        An int in [0, 2**32), which every environment family accepts.
    """
    return int(np.random.SeedSequence([run_seed, stream, *counters]).generate_state(1)[0])
