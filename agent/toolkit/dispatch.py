"""A mode that sees every tensor operation, without torch's compiler."""

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A TorchDispatchMode whose first operation does not import torch._dynamo, which takes most of a second.

    torch hides a mode's `__torch_dispatch__` from its compiler, and imports the compiler for that. Nothing is compiled
    within the modes of this project.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
