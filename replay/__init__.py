"""Around the replay buffer: n-step rows, batches for a GPU, files on disk."""
