"""Environments. This file imports nothing: dm_control reads MUJOCO_GL when it is imported (see run/machine.py).

make.py: makes an environment from a task's name; suite_task.py: the same for the Control Suite. names.py: task names.
arguments.py: checks `env_kwargs`. adapter.py: observations and actions as agents take them, vectors or images.
errors.py: reports the exceptions of a user's environment. episodes.py: episodes that are seeded and can be restored, or
are recorded for a data set. processes.py: several environments, together or in processes of their own. stepping.py:
environments stepped in a thread during an update. opengl.py: the backend that renders.
"""
