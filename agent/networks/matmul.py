"""Products of matrices without a graph, by the faster of the two libraries that torch has on a CPU.

torch.mm asks MKL, which leaves AVX-512 alone on processors that are not Intel's. There oneDNN, which torch asks for
convolutions, takes half as long for 256 x 256 numbers, and adds a bias and a ReLU on its way (docs/PERFORMANCE.md). A
call of it costs ten microseconds more, so small products stay where they are.
"""

from functools import cache

import torch

from settings.operating_system import processor_vendor

LARGE = 2**21  # multiplications of a product that oneDNN is faster at: 128 rows by 128 x 128
LARGE_OF_COLUMNS = 2**22  # where both are read by columns, as for a weight's gradient


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    relu: bool = False,
    rows: int | None = None,
    least: int = LARGE,
) -> torch.Tensor:
    """a b, a bias on top and a ReLU after it where asked: (M, K) (K, L) -> (M, L), or N of them side by side.

    Args:
        a: (M, K) or (N, M, K); or (M, K) for each of b's N.
        b: (K, L) or (N, K, L).
        bias: (L) or (1, L), or (N, 1, L).
        rows: M as the choice of the library sees it, where it differs from call to call.
        least: multiplications from which on it is oneDNN.
    """
    if _by_onednn(a, b, a.shape[-2] if rows is None else rows, least):
        return _onednn(a, b, bias, "relu" if relu else "none")
    if b.dim() == 2:
        out = torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)
    else:
        a = a if a.dim() == 3 else a.expand(b.shape[0], -1, -1)
        out = torch.bmm(a, b) if bias is None else torch.baddbmm(bias, a, b)
    return out.relu_() if relu else out


def _by_onednn(a: torch.Tensor, b: torch.Tensor, rows: int, least: int) -> bool:
    if not isinstance(rows, int):  # for a batch of any size: a policy is being exported
        return False
    large = rows * b.shape[-2] * b.shape[-1] >= least
    is_plain = a.dtype == b.dtype == torch.float32 and a.device.type == "cpu" and not torch.compiler.is_compiling()
    return large and is_plain and mkl_leaves_avx512_alone()


@cache
def mkl_leaves_avx512_alone() -> bool:
    """Whether this processor has AVX-512 and is not Intel's."""
    if not (torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability().startswith("AVX512")):
        return False
    return processor_vendor() not in ("", "GenuineIntel")


def _onednn(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, after: str) -> torch.Tensor:
    if b.dim() == 2:
        return _linear(a, b, None if bias is None else bias.view(-1), after)
    found = [
        _linear(a if a.dim() == 2 else a[i], b[i], None if bias is None else bias[i, 0], after) for i in range(len(b))
    ]
    return torch.stack(found)


def _linear(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, after: str) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(a, b.t(), bias, after, [], "")
