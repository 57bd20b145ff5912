"""Matmuls without autograd. The faster of the two libraries that torch has on a CPU computes them.

torch.mm calls MKL, which does not use AVX-512 on processors other than Intel's. On those, oneDNN, which torch calls for
convolutions, takes half the time for 256 x 256 matrices, and fuses a bias and a ReLU (docs/PERFORMANCE.md). A call of
oneDNN costs ten microseconds more, so small matmuls stay with MKL. Autograd has no gradient for that call: mlp.py and
batch_norm.py have hand-written backward passes.
"""

from functools import cache

import torch
from torch import Tensor

from settings.operating_system import of_processor

LARGE = 2**21  # multiplications at and above which oneDNN is faster: 128 rows by 128 x 128
LARGE_OF_COLUMNS = 2**22  # the same if both matrices are read by columns, as for a weight's gradient


def fast_matmul(
    a: Tensor, b: Tensor, bias: Tensor | None = None, relu: bool = False, rows: int | None = None, least: int = LARGE
) -> Tensor:
    """Returns a b, optionally with a bias and a ReLU: (M, K) (K, L) -> (M, L), or a batch of N such matmuls.

    Args:
        a: (M, K) or (N, M, K); (M, K) is multiplied with each of b's N matrices.
        bias: (L,) or (1, L), or (N, 1, L).
        rows: the M by which the library is chosen, for calls whose own M varies.
        least: number of multiplications at and above which oneDNN is chosen.
    """
    if _prefers_onednn(a, b, a.shape[-2] if rows is None else rows, least):
        return _onednn(a, b, bias, "relu" if relu else "none")
    if b.dim() == 2:
        out = torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)
    else:
        a = a if a.dim() == 3 else a.expand(b.shape[0], -1, -1)
        out = torch.bmm(a, b) if bias is None else torch.baddbmm(bias, a, b)
    return out.relu_() if relu else out


def _prefers_onednn(a: Tensor, b: Tensor, rows: int, least: int) -> bool:
    is_plain = a.dtype == b.dtype == torch.float32 and a.device.type == "cpu" and not torch.compiler.is_compiling()
    # In an export for batches of any size, `rows` is a symbol.
    is_large = isinstance(rows, int) and rows * b.shape[-2] * b.shape[-1] >= least
    return is_large and is_plain and mkl_leaves_avx512_alone()


@cache
def mkl_leaves_avx512_alone() -> bool:
    """Returns whether this processor has AVX-512 and is not Intel's."""
    has_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512") and torch.backends.mkldnn.is_available()
    return has_avx512 and of_processor("vendor_id") not in ("", "GenuineIntel")


def _onednn(a: Tensor, b: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    linear = torch.ops.mkldnn._linear_pointwise
    if b.dim() == 2:
        return linear(a, b.t(), None if bias is None else bias.view(-1), activation, [], "")
    members = range(len(b))
    inputs = [a if a.dim() == 2 else a[i] for i in members]
    biases = [None if bias is None else bias[i, 0] for i in members]
    return torch.stack([linear(inputs[i], b[i].t(), biases[i], activation, [], "") for i in members])
