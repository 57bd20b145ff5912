"""Worlds of one task of the Control Suite side by side, stepped by MuJoCo's own C functions (`physics=batched`).

dm_control starts every episode, so initial states are its own, bit for bit. After that its Python code is bypassed: a
step of all worlds is MuJoCo's step of each, in threads, and one call of NumPy functions for all observations and all
rewards, which equal dm_control's bit for bit.

To add a task, write `tasks/<domain>.py` with a subclass of Task and `TASKS`, a dictionary from the task's name in the
suite to the class, as tasks/cheetah.py. The constructor finds indices by name, `observation` and `reward` are array
operations on them. tests/physics/test_tasks.py compares every task with dm_control. A task without a class runs with
`physics=suite`.
"""
