import torch
from torch import nn

import utils


def test_soft_update_moves_by_tau() -> None:
    net, target = nn.Linear(2, 2), nn.Linear(2, 2)
    before = target.weight.detach().clone()
    utils.soft_update_params(net, target, 0.25)
    torch.testing.assert_close(target.weight, before + 0.25 * (net.weight - before))


def test_a_generator_of_another_kind_of_device_begins_anew_from_its_state() -> None:
    first, second, other = torch.Generator(), torch.Generator(), torch.Generator()
    for generator, number in ((first, 1), (second, 1), (other, 2)):
        utils.restore_generator(generator, torch.full((16,), number, dtype=torch.uint8))  # as long as on a GPU
    drawn = [torch.rand(3, generator=generator) for generator in (first, second, other)]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
