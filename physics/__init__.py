"""Worlds of one task of the Control Suite side by side, stepped by MuJoCo's own C functions (`physics=batched`).

dm_control starts every episode, so initial states are its own, bit for bit. After that its Python code is bypassed: a
step of all worlds is MuJoCo's step of each, in threads, and one call of NumPy functions for all observations and all
rewards, which equal dm_control's bit for bit.

To add a task, write `tasks/<domain>.py` with a subclass of Task and `TASKS`, a dictionary from the task's name in the
suite to the class. The constructor finds indices by name, `observation` and `reward` are array operations on them:

    class Cheetah(Task):
        def __init__(self, model, task):
            self.speed = sensors(model, "torso_subtreelinvel")[0]

        def observation(self, state):
            return state.qpos[:, 1:], state.qvel

        def reward(self, state):
            return tolerance(state.sensordata[:, self.speed], (10, math.inf), 10, "linear", 0)

    TASKS = {"run": Cheetah}

tests/physics/test_tasks.py compares every task with dm_control. A task without a class runs with `physics=suite`.
"""
