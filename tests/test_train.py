"""Whole runs find known values, repeat to the same bytes, and learn."""

import math
import sys
from pathlib import Path

import numpy as np
import probes
import pytest
import torch
from omegaconf import OmegaConf
from runs import assert_goes_on, rows
from same_run import timeless

from run.workspace import Workspace
from settings import compose
from settings.schema import check, get_values

PROBE = (
    *("agent.learnable_temperature=false", "agent.init_temperature=1e-6", "agent.batch_size=32"),
    *("agent.critic_lr=1e-2", "agent.actor_lr=1e-2", "agent.critic_tau=0.2"),
    *("num_train_steps=350", "eval_frequency=100000"),
)


@pytest.mark.parametrize(
    ("env", "value"),
    [
        ("ProbeOneStep-v0", 1.0),  # one step pays 1 and terminates: no bootstrap is added
        ("ProbeTwoSteps-v0", 0.5),  # the second of two steps pays 1: gamma
        ("ProbeTimeLimit-v0", 2.0),  # pays 1 for ever, cut by a time limit: 1 / (1 - gamma), not less
    ],
)
def test_the_critics_find_known_values(tmp_path: Path, env: str, value: float) -> None:
    agent = probes.train(tmp_path, f"env={env}", "agent.discount=0.5", *PROBE).agent
    q = agent.critic(torch.zeros(9, 1), torch.linspace(-1, 1, 9).unsqueeze(1))
    torch.testing.assert_close(q, torch.full_like(q, value), atol=0.08, rtol=0)


def test_the_actor_finds_the_action_that_pays(tmp_path: Path) -> None:
    agent = probes.train(tmp_path, "env=ProbeActionMatters-v0", *PROBE).agent
    assert agent.act(np.zeros(1, np.float32))[0] == pytest.approx(0.5, abs=0.15)


def test_the_same_seed_gives_the_same_bytes_and_evaluation_changes_none(tmp_path: Path) -> None:
    # Episodes of 50 steps.
    run = ("env=reacher_easy", "+env_kwargs.time_limit=1", "num_train_steps=150", "num_seed_steps=60")
    others = {"a": (), "b": (), "c": ("eval_frequency=70", "num_eval_episodes=3"), "d": ("seed=2",)}
    for name, overrides in others.items():
        probes.train(tmp_path / name, *run, *overrides)
    first, again, evaluated, other = (timeless(tmp_path / name / "train.csv") for name in "abcd")
    assert first == again == evaluated != other
    assert timeless(tmp_path / "a/eval.csv") == timeless(tmp_path / "b/eval.csv")


no_box2d = pytest.mark.skipif(sys.version_info >= (3, 14), reason="Box2D has no wheel for Python 3.14")
PRESETS = ["cpu", "fast", "pendulum", pytest.param("lunar_lander", marks=no_box2d), "sac_2018"]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_trains_and_logs_in_its_own_environment(tmp_path: Path, preset: str) -> None:
    small = ("num_train_steps=480", "num_seed_steps=50", "min_buffer_size=130", "eval_frequency=1000", "device=cpu")
    quiet = ("save_video=false", "log_save_tb=false", "save_figure=false", "num_eval_episodes=1")
    run = Workspace(check(get_values(compose.compose_config([f"preset={preset}", *small, *quiet]))), tmp_path)
    run.run()
    assert run.agent.num_updates > 30
    assert all(math.isfinite(float(value)) for value in rows(tmp_path / "train.csv")[-1].values() if value)


def test_the_saved_config_says_what_was_used(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=cheetah_run", "device=auto", "num_train_steps=1e3")
    run.close()
    saved = OmegaConf.load(tmp_path / "config.yaml")
    assert (saved.agent.obs_dim, saved.agent.action_dim, list(saved.agent.action_range)) == (17, 6, [-1.0, 1.0])
    assert saved.device in ("cpu", "cuda")
    assert saved.num_threads == torch.get_num_threads()
    assert saved.replay_buffer_capacity == 1000
    assert saved.precision in ("fp32", "tf32")


@pytest.mark.thorough
def test_it_learns(tmp_path: Path) -> None:
    """Pendulum swings up within 2500 steps; a random policy gets about -1200."""
    overrides = ("preset=cpu", "env=Pendulum-v1", "action_repeat=1", "num_seed_steps=500", "num_train_steps=2500")
    sizes = ("agent.critic.hidden_dim=64", "agent.actor.hidden_dim=64", "agent.batch_size=64", "num_eval_episodes=10")
    trained = probes.train(tmp_path, *overrides, *sizes, "eval_frequency=2500", "execution=auto", "agent.discount=0.95")
    assert trained.progress.last_return > -400


@pytest.mark.parametrize("num_envs", [1, 4])
def test_no_transition_reaches_across_episodes(tmp_path: Path, num_envs: int) -> None:
    several = (f"num_envs={num_envs}", "num_train_steps=240", "num_seed_steps=120")
    run = probes.train(tmp_path, "env=probes:ProbeNumbered-v0", *several)
    stored = run.replay_buffer.rows[: run.replay_buffer.num_added]
    episode, step, discount, next_episode, next_step = (stored[:, column] for column in (0, 1, 4, 5, 6))
    assert len(stored) == 240
    assert (episode == next_episode).all()
    assert (next_step == step + 1).all()
    assert episode.max() > 3
    ended = discount == 0
    assert (next_step[ended] >= 3).all() and ended.sum() >= 240 / 7 - num_envs
    assert run.agent.num_updates == 120  # one per transition, whatever num_envs is
    train = rows(tmp_path / "train.csv")
    assert sum(int(row["episode_length"]) for row in train) == 240
    assert [int(row["episode"]) for row in train] == list(range(1, len(train) + 1))


def test_the_agent_observes_every_transition_once_before_it_is_stored(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=probes:ProbeNumbered-v0", "num_envs=2", "num_train_steps=240")
    shown: list[np.ndarray] = []

    def observe(*step: np.ndarray) -> None:
        assert 2 * len(shown) == run.replay_buffer.num_added
        obs, action, reward, next_obs, terminated, truncated = step
        assert not truncated.any()  # these episodes all terminate
        shown.append(np.column_stack([obs, action, reward, ~terminated, next_obs]))

    run.agent.observe = observe
    run.run()
    np.testing.assert_array_equal(np.concatenate(shown), run.replay_buffer.rows[:240])


@pytest.mark.parametrize("env", ["reacher_easy", "Pendulum-v1"])
def test_each_environment_has_a_stream_of_its_own(env: str, tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, f"env={env}", "num_envs=3")
    starts = run.loop.begin_episodes(np.ones(3, bool))
    assert len({start.tobytes() for start in starts}) == 3
    run.close()


def test_an_evaluator_of_ones_own_goes_on(tmp_path: Path) -> None:
    overrides = ("evaluator._target_=probes.CountingEvaluator", "num_train_steps=100", "eval_frequency=50")
    assert_goes_on(tmp_path, 80, "env=ProbeTimeLimit-v0", *overrides, "checkpoint_frequency=30")
    written = [(row["step"], row["episode_reward"]) for row in rows(tmp_path / "killed/eval.csv")]
    assert written == [("50", "1.0"), ("100", "2.0")]


def test_an_agent_of_a_fork_trains_and_says_that_it_cannot_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its class saves nothing, and is otherwise written as for pytorch_sac."""
    small = ("execution=auto", "env=Pendulum-v1", "checkpoint_frequency=50", "num_train_steps=250")
    values = get_values(compose.compose_config([*probes.SMALL, *small]))
    values["agent"] = {"name": "fork", "_target_": "forks.ForkAgent", "_partial_": True}
    workspace = Workspace(check(values), tmp_path)
    workspace.run()
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"Folder: {tmp_path}" and second.startswith("This run cannot be resumed: ForkA")
    assert not (tmp_path / "checkpoints").exists() and (tmp_path / "finished.json").exists()
    assert rows(tmp_path / "train.csv")[-1]["actor_loss"]
