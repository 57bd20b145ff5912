"""Evaluation of a run's policy."""
