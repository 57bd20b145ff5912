"""What a run's logs say: rows, evaluations, columns, tags and the progress bar."""

import math
from pathlib import Path

import probes
import pytest
from runs import rows
from tqdm import tqdm


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


def test_evaluation_fires_whatever_the_episodes_length(tmp_path: Path) -> None:
    short = ("env=cheetah_run", "+env_kwargs.time_limit=1", "num_train_steps=150", "num_seed_steps=150")
    probes.train(tmp_path, *short, "action_repeat=3", "eval_frequency=40")
    assert [int(row["step"]) for row in rows(tmp_path / "eval.csv")] == [42, 81, 121, 151]
    train = rows(tmp_path / "train.csv")
    assert [int(row["step"]) for row in train] == [100, 151]  # environment steps, not decisions


def test_columns_and_tags_keep_their_names(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    probes.train(tmp_path, "env=ProbeTimeLimit-v0", "log_save_tb=true", "log_frequency=200")
    columns = "episode step episode_reward duration batch_reward actor_loss actor_target_entropy actor_entropy "
    columns += "critic_loss alpha_loss alpha_value"
    last = rows(tmp_path / "train.csv")[-1]
    assert set(columns.split()) <= set(last)
    assert all(math.isfinite(float(last[name])) for name in last)
    assert float(last["actor_target_entropy"]) == -1.0
    assert {"episode", "step", "episode_reward"} <= set(rows(tmp_path / "eval.csv")[0])

    accumulator = EventAccumulator(str(tmp_path / "tb"), size_guidance={"histograms": 0})
    accumulator.Reload()
    scalars = {
        *("train/episode_reward", "train/batch_reward", "train_critic/loss", "train_actor/loss", "train_actor/entropy"),
        *("train_actor/target_entropy", "train_alpha/loss", "train_alpha/value", "eval/episode_reward"),
        *("train/episode", "train/duration"),
    }
    tags = accumulator.Tags()["scalars"]
    assert scalars <= set(tags)
    assert sorted(tags)[:2] == ["Return/evaluation", "Return/training"]
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


def test_the_progress_bar_says_when_an_evaluation_is_made_and_how_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(tqdm, "set_postfix_str", lambda bar, text="", refresh=True: said.append(text))
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", "num_train_steps=15", "eval_frequency=10")
    run.run()
    # Episodes last five steps; the last evaluation is made at the run's end.
    assert said == ["evaluating step 10", *["evaluated at 5.0"] * 2, "evaluating step 15", "evaluated at 5.0"]


def test_the_spread_of_an_evaluation(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", "num_train_steps=20", "num_eval_episodes=1")
    row = rows(tmp_path / "eval.csv")[0]
    assert [row[f"episode_length{ending}"] for ending in ("", "_std", "_min", "_max")] == ["5.0", "0.0", "5", "5"]
