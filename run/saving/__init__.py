"""What a run keeps on disk and continues from."""
