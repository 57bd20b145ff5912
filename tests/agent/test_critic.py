"""A critic ensemble computes what its members would compute alone."""

import torch

from agent.critic import DoubleQCritic


def test_members_are_independent_networks_that_start_orthogonal() -> None:
    critic = DoubleQCritic(4, 2, hidden_dim=16, hidden_depth=2)
    obs, action = torch.randn(8, 4), torch.randn(8, 2)
    q1, q2 = critic(obs, action)
    assert not torch.equal(q1, q2)
    for member, value in enumerate((q1, q2)):
        x = torch.cat([obs, action], 1)
        for i, layer in enumerate(critic.trunk.layers):
            x = (torch.relu(x) if i else x) @ layer.weight[member] + layer.bias[member]
            weight = layer.weight[member]
            short = weight if len(weight) <= weight.shape[1] else weight.mT
            torch.testing.assert_close(short @ short.T, torch.eye(len(short)), atol=1e-5, rtol=0)
            assert (layer.bias == 0).all()
        torch.testing.assert_close(value, x)
