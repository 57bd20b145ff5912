"""A critic ensemble computes what its members would compute alone."""

import pytest
import torch

from agent.critic import DoubleQCritic


@pytest.mark.parametrize("num_critics", [1, 2, 5])
def test_members_are_independent_networks(num_critics: int) -> None:
    critic = DoubleQCritic(4, 2, hidden_dim=16, hidden_depth=2, num_critics=num_critics)
    obs, action = torch.randn(8, 4), torch.randn(8, 2)
    values = critic(obs, action)
    assert values.shape == (num_critics, 8, 1)
    for member, value in enumerate(values):
        x = torch.cat([obs, action], 1)
        for i, layer in enumerate(critic.trunk.layers):
            x = (torch.relu(x) if i else x) @ layer.weight[member] + layer.bias[member]
        torch.testing.assert_close(value, x)
    assert num_critics == 1 or not torch.equal(values[0], values[1])


def test_a_double_critic_unpacks() -> None:
    q1, q2 = DoubleQCritic(4, 2, hidden_dim=16, hidden_depth=2)(torch.randn(8, 4), torch.randn(8, 2))
    assert q1.shape == q2.shape == (8, 1)


def test_weights_start_orthogonal_and_biases_at_zero() -> None:
    for layer in DoubleQCritic(4, 2, hidden_dim=16, hidden_depth=2).trunk.layers:
        assert (layer.bias == 0).all()
        for weight in layer.weight:
            short = weight if weight.shape[0] <= weight.shape[1] else weight.T
            torch.testing.assert_close(short @ short.T, torch.eye(len(short)), atol=1e-5, rtol=0)
