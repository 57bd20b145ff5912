"""Environments. This file imports nothing: dm_control reads MUJOCO_GL when it is imported (see run/machine.py)."""
