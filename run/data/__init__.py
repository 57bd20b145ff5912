"""Where transitions come from: the replay buffer, preloaded data and recorded data sets."""
