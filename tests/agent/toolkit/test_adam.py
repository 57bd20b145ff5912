"""Our Adam against torch's, and each network's weight decay."""

import pytest
import torch

from agent.toolkit.adam import Adam


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_are_torchs_and_go_on_from_a_state(decay: float) -> None:
    torch.manual_seed(0)
    start = [torch.randn(4, 3), torch.randn(3), torch.randn(())]
    ours, theirs = ([torch.nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    optimizer = Adam(ours, 1e-2, (0.8, 0.99), decay)
    reference = torch.optim.AdamW(theirs, 1e-2, (0.8, 0.99), eps=1e-8, weight_decay=decay)
    for i in range(20):
        if i == 10:
            reference.param_groups[0]["lr"] = 1e-3
            optimizer.set_lr(1e-3)
            continued = Adam(ours, 1.0, (0.8, 0.99), decay)
            continued.load_state_dict(optimizer.state_dict())
            optimizer = continued
        for a, b in zip(ours, theirs, strict=True):
            a.grad = b.grad = torch.randn_like(a)
        optimizer.step()
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_a_gradient_may_lie_in_memory_in_another_order_than_its_parameter() -> None:
    torch.manual_seed(0)
    start, gradient = torch.randn(4, 3, 2, 2), torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    ours.grad, theirs.grad = gradient, gradient.contiguous()
    Adam([ours], 1e-2, (0.8, 0.99)).step()
    torch.optim.Adam([theirs], 1e-2, (0.8, 0.99)).step()
    torch.testing.assert_close(ours, theirs)
