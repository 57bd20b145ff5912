"""Additions to replay_buffer.py: n-step rows, images, batches for a GPU, files on disk, recorded data sets."""
