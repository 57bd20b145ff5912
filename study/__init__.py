"""A study of several runs (plot.py is the command)."""
