"""Our Adam against torch's."""

import torch

from agent.adam import Adam


def test_steps_are_torchs_and_go_on_from_a_state() -> None:
    torch.manual_seed(0)
    start = [torch.randn(4, 3), torch.randn(3), torch.randn(())]
    ours, theirs = ([torch.nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    optimizer, reference = Adam(ours, 1e-2, (0.8, 0.99)), torch.optim.Adam(theirs, 1e-2, (0.8, 0.99), eps=1e-8)
    for i in range(20):
        if i == 10:
            reference.param_groups[0]["lr"] = 1e-3
            optimizer.set_lr(1e-3)
            continued = Adam(ours, 1.0, (0.8, 0.99))
            continued.load_state_dict(optimizer.state_dict())
            optimizer = continued
        for a, b in zip(ours, theirs, strict=True):
            a.grad = b.grad = torch.randn_like(a)
        optimizer.step()
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
