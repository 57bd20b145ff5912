"""Soft actor-critic on one page of plain PyTorch. Read it from top to bottom with the paper, arXiv 1812.05905.

    python examples/sac_on_one_page.py cartpole_swingup --seed 1 --steps 20000

Numbers in brackets are the paper's equations; its phi, theta and theta_bar are lists of weights here, and its state is
an observation o. Shapes: B transitions in a batch, |o| and |a| numbers in an observation and an action, H hidden units.

Only the environments come from the project. The rest of it makes SAC faster and safer and changes no number: a test
holds that on a CPU `train` below and `agent=sac execution=eager agent.critic_target_update_frequency=1` arrive at the
same bytes. (On some processors the framework uses another library for large matmuls, which rounds differently.)
"""

import argparse
import math
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.optim import Adam


def initial_weights(in_dim, hidden_dim, out_dim, n=()):
    """Orthogonal W, (in, out), and b = 0, (1, out), for three layers; with n=(2,) for two networks, (2, in, out)."""
    weights = []
    for shape in (in_dim, hidden_dim), (hidden_dim, hidden_dim), (hidden_dim, out_dim):
        w, b = torch.empty(*n, *shape), torch.zeros(*n, 1, shape[1])
        for matrix in w.view(-1, *shape):
            torch.nn.init.orthogonal_(matrix)
        weights += [w.requires_grad_(), b.requires_grad_()]
    return weights


def policy(phi, o):
    """mu and log sigma of the Gaussian that is squashed by tanh, (B, |o|) -> (B, |a|) each."""
    w1, b1, w2, b2, w3, b3 = phi
    h = torch.addmm(b1, o, w1).relu()  # b1 + o @ w1, (B, H)
    h = torch.addmm(b2, h, w2).relu()
    mu, s = torch.addmm(b3, h, w3).chunk(2, dim=-1)
    return mu, -1.5 + 3.5 * torch.tanh(s)  # log sigma from -5 to 2


def sample(mu, log_sigma, epsilon):
    """a = tanh(u), u = mu + sigma epsilon (8); log pi(a|o) = sum log N(u; mu, sigma^2) - log(1 - a^2) (appendix C)."""
    spread = log_sigma.exp() * epsilon
    u = mu + spread
    # log(1 - a^2) = 2 (log 2 - u - softplus(-2u)), which does not round to log 0 where |u| is large.
    log_pi = 2 * (u + F.softplus(-2 * u)) - torch.addcmul(log_sigma, epsilon, epsilon, value=0.5)
    log_pi = log_pi.sum(-1, keepdim=True) - u.shape[-1] * (math.log(2 * math.pi) / 2 + 2 * math.log(2))
    return torch.tanh(u), log_pi, spread  # (B, |a|), (B, 1), (B, |a|)


def critics(theta, o, a):
    """Q_1 and Q_2 of (o, a), (2, B, 1), two networks in one batched matmul; and their hidden layers, (2, B, H)."""
    w1, b1, w2, b2, w3, b3 = theta
    x = torch.cat([o, a], dim=-1).expand(2, -1, -1)  # (2, B, |o| + |a|)
    h1 = torch.baddbmm(b1, x, w1).relu()
    h2 = torch.baddbmm(b2, h1, w2).relu()
    return torch.baddbmm(b3, w3.mT, h2.mT).mT, h1, h2  # b3 + h2 @ w3, as a row, which is faster than one column


@torch.no_grad()
def policy_gradient(theta, o, mu, log_sigma, epsilon, alpha):
    """The gradient (10) of J_pi = mean(alpha log pi(a|o) - min_i Q_i(o, a)) (7) in mu and log sigma; and log pi(a|o).

    Autograd would find it as well. The framework has it written out, which is faster and rounds the last bit
    differently, so for the same bytes it is written out here too.
    """
    a, log_pi, spread = sample(mu, log_sigma, epsilon)
    (w1, _, w2, _, w3, _), (q, h1, h2) = theta, critics(theta, o, a)
    smaller, grad_a = q.min(dim=0).indices[:, 0], torch.zeros_like(a)
    for i in range(2):  # back through Q_i to the action, in the rows where it is the smaller one
        rows = (smaller == i).nonzero()[:, 0]
        grad = -1 / len(o) * w3[i].mT * (h2[i, rows] > 0)  # (rows, H)
        grad = grad @ w2[i].mT * (h1[i, rows] > 0)
        grad_a[rows] = (w1[i, -a.shape[1] :] @ grad.mT).mT  # the last |a| rows of w1 are the action's
    grad_log_pi = alpha * torch.full_like(log_pi, 1 / len(o))
    grad_u = torch.ops.aten.tanh_backward(grad_a, a)  # grad_a da/du, da/du = 1 - a^2
    grad_u.addcmul_(grad_log_pi, a, value=2)  # + grad_log_pi d log pi/du, d log pi/du = 2a
    return grad_u, grad_u * spread - grad_log_pi, log_pi  # du/d log sigma = spread, d log N/d log sigma = -1


def descend(optimizer, outputs, gradients=None):
    """A gradient step on a scalar loss; or, from a loss's gradients in the outputs of a network, on that loss."""
    optimizer.zero_grad()
    torch.autograd.backward(outputs, gradients)
    optimizer.step()


def begin_episode(env, *numbers):
    """The seed is a function of the run's seed, 0 in training or 1 in evaluation, and the numbers of the episode."""
    return env.reset(seed=int(np.random.SeedSequence(numbers).generate_state(1)[0]))[0]


def train(
    env, seed, steps, seed_steps=1000, hidden_dim=256, batch_size=256, capacity=10**6, lr=3e-4, gamma=0.99, tau=0.005
):
    """Algorithm 1, with the sizes and rates of table 1; returns phi, theta, theta_bar and log alpha."""
    torch.manual_seed(seed)
    noise, uniform = torch.Generator().manual_seed(seed), np.random.default_rng(seed)  # epsilon; random actions
    (obs_dim,), (action_dim,) = env.observation_space.shape, env.action_space.shape

    phi = initial_weights(obs_dim, hidden_dim, 2 * action_dim)
    theta = initial_weights(obs_dim + action_dim, hidden_dim, 1, n=(2,))
    theta_bar = [w.detach().clone() for w in theta]
    log_alpha = torch.tensor(math.log(0.1), requires_grad=True)
    adam_pi, adam_q, adam_alpha = (Adam(w, torch.tensor(lr), fused=True) for w in (phi, theta, [log_alpha]))
    widths = [obs_dim, action_dim, 1, 1, obs_dim]  # of (o, a, r, 1 - d, o'); d is 1 where the episode terminated
    replay_buffer, draws = np.zeros((capacity, sum(widths)), np.float32), np.random.default_rng(seed)

    obs, episode, episode_return = begin_episode(env, seed, 0, 0, 1), 1, 0.0
    for step in range(steps):
        if step < seed_steps:
            action = uniform.uniform(-1, 1, action_dim).astype(np.float32)
        else:
            epsilon = torch.randn(1, action_dim, generator=noise)
            action = sample(*policy(phi, torch.from_numpy(obs)[None]), epsilon)[0][0].detach().numpy()

            rows = replay_buffer[draws.integers(0, min(step, capacity), batch_size)]
            o, a, r, not_done, next_o = torch.from_numpy(rows).split(widths, dim=1)
            next_epsilon, epsilon = (torch.randn(batch_size, action_dim, generator=noise) for _ in range(2))
            alpha = log_alpha.exp().detach()

            with torch.no_grad():  # y = r + gamma (1 - d) (min_i Q_i(o', a') - alpha log pi(a'|o')), a' ~ pi  (3)
                next_a, next_log_pi, _ = sample(*policy(phi, next_o), next_epsilon)
                next_v = critics(theta_bar, next_o, next_a)[0].min(dim=0).values - alpha * next_log_pi
                y = torch.addcmul(r, not_done, next_v, value=gamma)
            (q1, q2), _, _ = critics(theta, o, a)
            descend(adam_q, F.mse_loss(q1, y) + F.mse_loss(q2, y))  # J_Q (5), without its 1/2

            mu, log_sigma = policy(phi, o)
            *gradients, log_pi = policy_gradient(theta, o, mu, log_sigma, epsilon, alpha)
            descend(adam_pi, [mu, log_sigma], gradients)  # J_pi (7)

            descend(adam_alpha, log_alpha.exp() * (action_dim - log_pi.mean()))  # J(alpha) (18); target entropy -|a|
            for slow, w in zip(theta_bar, theta, strict=True):
                slow.lerp_(w.detach(), tau)  # theta_bar <- tau theta + (1 - tau) theta_bar

        next_obs, reward, terminated, truncated, _ = env.step(action)
        replay_buffer[step % capacity] = np.hstack([obs, action, reward, not terminated, next_obs])
        obs, episode_return = next_obs, episode_return + reward
        if terminated or truncated:
            print(f"episode {episode:4}  step {step + 1:7}  return {episode_return:8.1f}  alpha {log_alpha.exp():.3f}")
            episode, episode_return = episode + 1, 0.0
            obs = begin_episode(env, seed, 0, 0, episode)
    return phi, theta, theta_bar, log_alpha


@torch.no_grad()
def evaluate(phi, env, seed, step, episodes=10):
    """The mean return of the greedy actions, tanh(mu)."""
    total = 0.0
    for episode in range(episodes):
        obs, done = begin_episode(env, seed, 1, step, episode), False
        while not done:
            mu, _ = policy(phi, torch.from_numpy(obs)[None])
            obs, reward, terminated, truncated, _ = env.step(torch.tanh(mu)[0].numpy())
            total, done = total + reward, terminated or truncated
    return total / episodes


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("env", nargs="?", default="cartpole_swingup")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20_000)
    args = parser.parse_args()

    os.environ.setdefault("MUJOCO_GL", "disabled")  # nothing is rendered
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from envs.make import make_env

    torch.set_num_threads(1)  # at these sizes a second thread mostly waits
    torch.set_flush_denormal(True)  # numbers below 1e-38 are slow
    phi, *_ = train(make_env(args.env, args.seed), args.seed, args.steps)
    print("evaluation:", evaluate(phi, make_env(args.env, args.seed), args.seed, args.steps))
