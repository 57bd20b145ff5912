"""The humanoid of the CMU motion capture data."""

from physics.task import ZY
from physics.tasks.humanoid import Humanoid


class HumanoidCMU(Humanoid):
    """The humanoid's tasks for a model whose torso is called thorax; its y axis points up."""

    torso_name, limb_names, up = "thorax", ("lhand", "lfoot", "rhand", "rfoot"), ZY
    on_device = False


TASKS = dict.fromkeys(["stand", "walk", "run"], HumanoidCMU)
