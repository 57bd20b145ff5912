"""Our Adam against torch's, and each network's weight decay."""

import torch

from agent.toolkit.adam import Adam


def test_a_gradient_may_lie_in_memory_in_another_order_than_its_parameter() -> None:
    torch.manual_seed(0)
    start, gradient = torch.randn(4, 3, 2, 2), torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    ours.grad, theirs.grad = gradient, gradient.contiguous()
    Adam([ours], 1e-2, (0.8, 0.99)).step()
    torch.optim.Adam([theirs], 1e-2, (0.8, 0.99)).step()
    torch.testing.assert_close(ours, theirs)
