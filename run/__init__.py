"""A run: its parts, its folder, its checkpoints."""
