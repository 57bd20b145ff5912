"""Environments. Imports nothing: dm_control reads the choice of OpenGL when it is imported (see run/machine.py)."""
