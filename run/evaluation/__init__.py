"""Evaluations: episodes, their schedule and the process that runs them in the background."""
