"""The transitions that a run learns from."""
