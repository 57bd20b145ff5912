"""Whole runs: known values, the same bytes, and learning."""

import csv
import json
import math
from pathlib import Path

import gymnasium as gym
import numpy as np
import probes
import pytest
import torch
from omegaconf import OmegaConf

from settings import compose
from settings.check import check
from train import Workspace
from utils import UserError


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def timeless(path: Path) -> list[dict[str, str]]:
    clocks = ("duration", "_s", "per_second")
    return [
        {key: value for key, value in row.items() if not any(clock in key for clock in clocks)} for row in rows(path)
    ]


PROBE = (
    *(
        "agent.learnable_temperature=false",
        "agent.init_temperature=1e-6",
        "agent.critic_lr=5e-3",
        "agent.actor_lr=5e-3",
    ),
    *("agent.critic_tau=0.1", "num_train_steps=600", "agent.batch_size=32", "eval_frequency=100000"),
)


@pytest.mark.parametrize(
    ("env", "value"),
    [
        ("ProbeOneStep-v0", 1.0),  # one step pays 1 and terminates: nothing is added after it
        ("ProbeTwoSteps-v0", 0.5),  # the second of two pays 1: gamma
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


def test_row_n_is_episode_n_and_the_unfinished_one_is_not_lost(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", "num_train_steps=122", "eval_frequency=50")
    train = rows(tmp_path / "train.csv")
    assert [int(row["episode"]) for row in train] == list(range(1, 26))
    assert [int(row["step"]) for row in train] == [*range(5, 125, 5), 122]
    assert [float(row["episode_reward"]) for row in train] == [5.0] * 24 + [2.0]
    assert [int(row["episode_length"]) for row in train] == [5] * 24 + [2]
    assert train[0]["critic_loss"] == "" and train[-1]["critic_loss"] != ""
    evaluations = rows(tmp_path / "eval.csv")
    assert [int(row["step"]) for row in evaluations] == [50, 100, 122]
    assert {row["episode_reward"] for row in evaluations} == {"5.0"}


@pytest.mark.parametrize(
    ("steps", "repeat", "expected"), [(100, 1, [50, 100]), (40, 1, [40]), (99, 3, [50, 100]), (100, 4, [50, 100])]
)
def test_the_final_evaluation_comes_once(tmp_path: Path, steps: int, repeat: int, expected: list[int]) -> None:
    run = ("env=ProbeTimeLimit-v0", f"num_train_steps={steps}", f"action_repeat={repeat}")
    probes.train(tmp_path, *run, "eval_frequency=50")
    assert [int(row["step"]) for row in rows(tmp_path / "eval.csv")] == expected


def test_evaluation_fires_whatever_the_episodes_length(tmp_path: Path) -> None:
    run = ("env=cheetah_run", "action_repeat=3", "num_train_steps=1500", "num_seed_steps=1500")
    probes.train(tmp_path, *run, "eval_frequency=400")
    assert [int(row["step"]) for row in rows(tmp_path / "eval.csv")] == [402, 801, 1201, 1501]
    train = rows(tmp_path / "train.csv")
    assert [int(row["step"]) for row in train] == [1000, 1501]  # steps count environment steps


def test_the_same_seed_gives_the_same_bytes_and_evaluation_changes_none(tmp_path: Path) -> None:
    run = ("env=reacher_easy", "num_train_steps=1200", "num_seed_steps=1000")
    probes.train(tmp_path / "a", *run)
    probes.train(tmp_path / "b", *run)
    probes.train(tmp_path / "c", *run, "eval_frequency=550", "num_eval_episodes=3")
    probes.train(tmp_path / "d", *run, "seed=2")
    first = timeless(tmp_path / "a/train.csv")
    assert first == timeless(tmp_path / "b/train.csv")
    assert timeless(tmp_path / "a/eval.csv") == timeless(tmp_path / "b/eval.csv")
    assert first == timeless(tmp_path / "c/train.csv")
    assert first != timeless(tmp_path / "d/train.csv")


def test_no_seed_steps_waits_for_one_transition(tmp_path: Path) -> None:
    agent = probes.train(tmp_path, "env=ProbeTimeLimit-v0", "num_seed_steps=0", "num_train_steps=20").agent
    assert agent.num_updates == 19


@pytest.mark.parametrize(("updates_per_step", "expected"), [("3", 300), ("0.25", 25)])
def test_the_ratio_of_updates_to_transitions(tmp_path: Path, updates_per_step: str, expected: int) -> None:
    overrides = ("env=ProbeTimeLimit-v0", "num_train_steps=300", "num_seed_steps=100", "action_repeat=2")
    trained = probes.train(tmp_path, *overrides, f"updates_per_step={updates_per_step}")
    transitions = trained.replay_buffer.num_added
    assert trained.agent.num_updates == pytest.approx(expected * (transitions - 60) / 100, abs=1)


def test_updates_come_in_bursts_and_wait_for_the_buffer(tmp_path: Path) -> None:
    run = probes.workspace(
        tmp_path,
        "env=ProbeTimeLimit-v0",
        "num_seed_steps=0",
        "min_buffer_size=50",
        "update_every=20",
        "num_train_steps=131",
    )
    made: list[tuple[int, int]] = []
    update = run.agent.update
    run.agent.update = lambda *args: (made.append((run.step, run.replay_buffer.num_added)), update(*args))
    run.run()
    assert sorted({step for step, _ in made}) == [60, 80, 100, 120]
    assert [sum(step == at for step, _ in made) for at in (60, 80, 100, 120)] == [20] * 4


def test_a_buffer_smaller_than_the_first_updates_wait_still_trains(tmp_path: Path) -> None:
    overrides = ("num_seed_steps=0", "min_buffer_size=60", "replay_buffer_capacity=20", "num_train_steps=100")
    assert probes.train(tmp_path, "env=ProbeTimeLimit-v0", *overrides).agent.num_updates == 40


def test_a_fraction_of_an_update_adds_up_exactly(tmp_path: Path) -> None:
    run = probes.workspace(
        tmp_path, "env=ProbeTimeLimit-v0", "num_seed_steps=0", "updates_per_step=0.1", "num_train_steps=101"
    )
    made: list[int] = []
    run.agent.update = lambda buffer, logger, step: made.append(step)
    run.run()
    assert made == list(range(10, 101, 10))


def test_without_replacement_the_first_update_waits_for_a_batch(tmp_path: Path) -> None:
    overrides = ("num_seed_steps=0", "sample_with_replacement=false", "num_train_steps=30")
    assert probes.train(tmp_path, "env=ProbeTimeLimit-v0", *overrides).agent.num_updates == 30 - 16


@pytest.mark.parametrize("policy", ["uniform", "agent", "saved"])
def test_who_acts_first(tmp_path: Path, policy: str) -> None:
    first = probes.workspace(tmp_path / "first", "env=ProbeTimeLimit-v0")
    for layer in first.agent.actor.parameters():
        layer.data.fill_(1.0)  # whose actions all lie at the upper bound
    first.agent.save_policy(tmp_path / "policy.pt")
    chosen = tmp_path / "policy.pt" if policy == "saved" else policy
    run = probes.train(tmp_path / "run", "env=ProbeTimeLimit-v0", "num_train_steps=100", f"seed_policy={chosen}")
    actions = run.replay_buffer._rows[:100, 1]
    # Uniform actions have a kurtosis of 1.8; those of the fresh policy, narrower than the range, are not spread so.
    assert (abs(actions.std() - 3**-0.5) < 0.06) == (policy == "uniform")
    assert (actions.min() > 0.5) == (policy == "saved")


@pytest.mark.parametrize("chosen", ["agent=sac", "agent=sac_v", "agent=sac_2018", "preset=cpu", "preset=fast"])
def test_every_agent_trains_logs_and_gives_the_same_bytes(tmp_path: Path, chosen: str) -> None:
    run = ("env=ProbeTimeLimit-v0", "num_train_steps=150", chosen, "num_threads=1")
    first, _ = (probes.train(tmp_path / name, *run) for name in "ab")
    assert first.agent.num_updates > 40
    assert timeless(tmp_path / "a/train.csv") == timeless(tmp_path / "b/train.csv")
    assert all(math.isfinite(float(value)) for value in rows(tmp_path / "a/train.csv")[-1].values() if value)


@pytest.mark.parametrize("preset", ["cpu", "fast", "pendulum", "lunar_lander", "sac_2018"])
def test_every_preset_trains_in_its_own_environment(tmp_path: Path, preset: str) -> None:
    small = ("num_train_steps=320", "num_seed_steps=50", "min_buffer_size=130", "eval_frequency=1000", "device=cpu")
    quiet = (
        "save_video=false",
        "log_save_tb=false",
        "save_figure=false",
        "num_eval_episodes=1",
        f"hydra.run.dir={tmp_path}",
    )
    config = compose.compose_config("train", [f"preset={preset}", *small, *quiet])
    run = Workspace(check(compose.plain(config)), tmp_path)
    run.run()
    run.close()
    assert run.agent.num_updates > 30


def test_the_saved_config_says_what_was_used(tmp_path: Path) -> None:
    probes.workspace(tmp_path, "env=cheetah_run", "device=auto", "num_train_steps=1e3").close()
    saved = OmegaConf.load(tmp_path / "config.yaml")
    assert (saved.agent.obs_dim, saved.agent.action_dim, list(saved.agent.action_range)) == (17, 6, [-1.0, 1.0])
    assert saved.device in ("cpu", "cuda")
    assert saved.num_threads == torch.get_num_threads()
    assert saved.replay_buffer_capacity == 1000


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=ProbeOneStep-v0", "num_train_steps=10")
    before = (tmp_path / "train.csv").read_bytes()
    with pytest.raises(UserError, match="logs are there already"):
        probes.workspace(tmp_path, "env=ProbeOneStep-v0")
    assert (tmp_path / "train.csv").read_bytes() == before


def test_an_interrupt_leaves_whole_logs_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0")
    step = interrupted.envs.step

    def stop_at_13(action: np.ndarray) -> tuple:
        if interrupted.step == 13:
            raise KeyboardInterrupt
        return step(action)

    monkeypatch.setattr(interrupted.envs, "step", stop_at_13)
    with pytest.raises(KeyboardInterrupt, match=f"step 13.*{tmp_path}"):
        interrupted.run()
    assert [row["step"] for row in rows(tmp_path / "train.csv")] == ["5", "10", "13"]


def test_columns_and_tags_keep_their_names(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    probes.train(tmp_path, "env=ProbeTimeLimit-v0", "log_save_tb=true", "log_frequency=200")
    columns = (
        "episode,step,episode_reward,duration,batch_reward,actor_loss,actor_target_entropy,actor_entropy,critic_loss,"
        "alpha_loss,alpha_value"
    )
    last = rows(tmp_path / "train.csv")[-1]
    assert set(columns.split(",")) <= set(last)
    assert all(math.isfinite(float(last[name])) for name in last)
    assert float(last["actor_target_entropy"]) == -1.0
    assert {"episode", "step", "episode_reward"} <= set(rows(tmp_path / "eval.csv")[0])

    accumulator = EventAccumulator(str(tmp_path / "tb"), size_guidance={"histograms": 0})
    accumulator.Reload()
    scalars = {
        *("train/episode_reward", "train/batch_reward", "train_critic/loss", "train_actor/loss", "train_actor/entropy"),
        *("train_actor/target_entropy", "train_alpha/loss", "train_alpha/value", "eval/episode_reward"),
        *("train/episode", "train/duration", "eval/episode"),
    }
    assert scalars <= set(accumulator.Tags()["scalars"])
    layers = [
        f"{net}fc{i}_{end}"
        for net in ("critic/q1_", "critic/q2_", "actor/")
        for i in (0, 2, 4)
        for end in ("w", "w_g", "b", "b_g")
    ]
    histograms = {f"train_{layer}" for layer in layers}
    histograms |= {f"train_{name}_hist" for name in ("critic/q1", "critic/q2", "actor/mu", "actor/std")}
    assert set(accumulator.Tags()["histograms"]) == histograms
    assert [event.step for event in accumulator.Histograms("train_critic/q1_hist")] == [200, 400]


@pytest.mark.parametrize("agent", ["sac", "sac_v"])
def test_a_delayed_actors_histograms_are_not_lost(tmp_path: Path, agent: str) -> None:
    overrides = ("num_seed_steps=9", "agent.actor_update_frequency=3", "log_frequency=20", "num_train_steps=60")
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", f"agent={agent}", *overrides)
    logged: list[tuple[str, int]] = []
    run.logger.log_histogram = lambda key, values, step, log_frequency: logged.append((key, step))
    run.run()
    steps = {key: [step for name, step in logged if name == key] for key, _ in logged}
    assert steps["train_critic/q1_hist"] == steps["train_actor/mu_hist"] == [21, 42]


def test_it_learns(tmp_path: Path) -> None:
    """Pendulum swings up within 2500 steps; a random policy gets about -1200."""
    overrides = ("preset=cpu", "env=Pendulum-v1", "action_repeat=1", "num_seed_steps=500", "num_train_steps=2500")
    sizes = ("agent.critic.hidden_dim=64", "agent.actor.hidden_dim=64", "agent.batch_size=64", "num_eval_episodes=10")
    trained = probes.train(tmp_path, *overrides, *sizes, "eval_frequency=2500", "execution=auto", "agent.discount=0.95")
    assert trained.last_return > -400


def test_videos_are_made_for_each_evaluation(opengl: None, tmp_path: Path) -> None:
    overrides = (
        "env=cheetah_run",
        "save_video=true",
        "num_train_steps=150",
        "eval_frequency=100",
        "num_eval_episodes=1",
    )
    short = probes.workspace(tmp_path, *overrides)
    for env in short.evaluator._envs:
        env._max_episode_steps = 30  # a third of a second is enough to film
        assert isinstance(env, gym.wrappers.TimeLimit)
    short.run()
    assert sorted(path.name for path in (tmp_path / "video").iterdir()) == ["100.mp4", "150.mp4"]


@pytest.mark.parametrize(("num_envs", "asynchronous"), [(1, False), (4, False), (3, True)])
def test_no_transition_reaches_across_episodes(tmp_path: Path, num_envs: int, asynchronous: bool) -> None:
    several = (f"num_envs={num_envs}", f"async_envs={asynchronous}", "num_train_steps=240", "num_seed_steps=120")
    run = probes.train(tmp_path, "env=probes:ProbeNumbered-v0", *several)
    stored = run.replay_buffer._rows[: run.replay_buffer.num_added]
    episode, step, discount, next_episode, next_step = (stored[:, column] for column in (0, 1, 4, 5, 6))
    assert len(stored) == 240
    assert (episode == next_episode).all()
    assert (next_step == step + 1).all()
    assert episode.max() > 3
    ended = discount == 0
    assert (next_step[ended] >= 3).all() and ended.sum() >= 240 / 7 - num_envs
    assert run.agent.num_updates == 120  # one a transition, however many environments
    train = rows(tmp_path / "train.csv")
    assert sum(int(row["episode_length"]) for row in train) == 240
    assert [int(row["episode"]) for row in train] == list(range(1, len(train) + 1))


def test_the_agent_observes_every_transition_once_before_it_is_stored(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=probes:ProbeNumbered-v0", "num_envs=2", "num_train_steps=240")
    shown: list[np.ndarray] = []

    def observe(*step: np.ndarray) -> None:
        assert 2 * len(shown) == run.replay_buffer.num_added
        obs, action, reward, next_obs, terminated, truncated = step
        assert not truncated.any()  # these episodes end by themselves
        shown.append(np.column_stack([obs, action, reward, ~terminated, next_obs]))

    run.agent.observe = observe
    run.run()
    run.close()
    np.testing.assert_array_equal(np.concatenate(shown), run.replay_buffer._rows[:240])


def test_processes_change_no_byte(tmp_path: Path) -> None:
    run = ("env=probes:ProbeNumbered-v0", "num_envs=2", "num_train_steps=160")
    probes.train(tmp_path / "together", *run)
    apart = probes.train(tmp_path / "apart", *run, "async_envs=true")
    assert len(apart.envs.processes) == 2  # type: ignore[attr-defined]
    assert timeless(tmp_path / "together/train.csv") == timeless(tmp_path / "apart/train.csv")


def test_each_environment_has_a_stream_of_its_own(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=reacher_easy", "num_envs=3")
    starts = run._begin_episodes(np.ones(3, bool))
    assert len({start.tobytes() for start in starts}) == 3
    run.close()


def test_an_evaluator_of_ones_own(tmp_path: Path) -> None:
    overrides = ("evaluator._target_=probes.ConstantEvaluator", "num_train_steps=100", "eval_frequency=50")
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *overrides)
    written = [(row["step"], row["episode_reward"], row["episode_length"]) for row in rows(tmp_path / "eval.csv")]
    assert written == [("50", "50.0", "7.0"), ("100", "100.0", "7.0")]


@pytest.mark.parametrize(("precision", "chosen", "dtype"), [("auto", "fp32", None), ("bf16", "bf16", torch.bfloat16)])
def test_the_precision_reaches_the_agent_and_the_saved_configuration(
    tmp_path: Path, precision: str, chosen: str, dtype: torch.dtype | None
) -> None:
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", f"precision={precision}")
    run.close()
    assert run.agent.autocast_dtype is dtype
    assert OmegaConf.load(tmp_path / "config.yaml").precision == chosen


def test_an_agent_without_a_temperature_has_a_progress_line_too(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0")
    said = []
    for losses in ({}, {"train_actor/loss": 1.25}, {"train_actor/loss": 1.25, "train_alpha/value": 0.5}):
        run._begin_episodes(np.ones(1, bool))
        run.progress.count(np.ones(1), np.ones(1, int))
        for key, value in losses.items():
            run.logger.log(key, value, run.step)
        said.append(run._end_episode(0))
    run.close()
    assert said == [
        "episode 1, 1 steps, return 1.0",
        "episode 2, 1 steps, return 1.0, actor loss 1.25",
        "episode 3, 1 steps, return 1.0, actor loss 1.25, alpha 0.500",
    ]


def test_an_agent_of_a_fork_trains_and_says_that_it_cannot_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of a class that saves nothing, with everything else left as it was written for pytorch_sac."""
    agent = "{name: fork, _target_: forks.ForkAgent, _partial_: true}"
    config = compose.compose_config(
        "train", [*probes.SMALL, "execution=auto", "env=Pendulum-v1", "checkpoint_frequency=50"]
    )
    values = compose.plain(config) | {"agent": OmegaConf.to_container(OmegaConf.create(agent))}
    workspace = Workspace(check(values), tmp_path)
    workspace.run()
    workspace.close()
    said = capsys.readouterr().out
    assert said.startswith(
        "Updates run eagerly: the agent makes its updates itself.\nThis run cannot be resumed: ForkA"
    )
    assert not (tmp_path / "checkpoints").exists() and (tmp_path / "finished.json").exists()
    with (tmp_path / "train.csv").open() as file:
        assert [row["actor_loss"] != "" for row in csv.DictReader(file)][-1]


@pytest.mark.parametrize(("while_seeding", "first"), [(False, 21), (True, 9)])
def test_updates_may_begin_while_the_seed_policy_acts(tmp_path: Path, while_seeding: bool, first: int) -> None:
    run = ("env=ProbeTimeLimit-v0", "num_train_steps=30", "num_seed_steps=20", "min_buffer_size=8")
    workspace = probes.workspace(tmp_path, *run, f"updates_while_seeding={while_seeding}")
    seen: list[int] = []
    update = workspace.agent.update
    workspace.agent.update = lambda buffer, logger, step: (seen.append(step + 1), update(buffer, logger, step))
    workspace.run()
    workspace.close()
    assert seen == list(range(first, 31))


def test_a_solved_task_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path, "env=ProbeSolved-v0", "num_train_steps=120", "eval_frequency=40", "num_eval_episodes=1")
    assert capsys.readouterr().out.count("Solved at step 40: 5.0 reaches the task's 5\n") == 1
    assert json.loads((tmp_path / "finished.json").read_text())["solved_step"] == 40
    with (tmp_path / "eval.csv").open() as file:
        (row, *_) = csv.DictReader(file)
    assert [row[f"episode_length{ending}"] for ending in ("", "_std", "_min", "_max")] == ["5.0", "0.0", "5", "5"]
