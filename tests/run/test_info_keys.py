"""Numbers from an environment's `info`: in logs, curves and evaluations."""

from pathlib import Path

import numpy as np
import probes
import pytest
from runs import assert_same, go_on, rows, run_until

from envs.episodes import EPISODE_INFO
from envs.make import adapt

KEYS = ("+info_keys.moved=sum", "+info_keys.taken=last")
RUN = (
    *("env=probes:ProbeGoal-v0", *KEYS, "num_train_steps=100", "num_seed_steps=40", "eval_frequency=40"),
    *("checkpoint_frequency=30", "num_eval_episodes=3", "eval_in_background=false", "num_threads=1"),
)
COLUMNS = ("info_is_success", "info_moved", "info_taken")


def columns(path: Path) -> list[tuple[str, ...]]:
    return [tuple(row[column] for column in COLUMNS) for row in rows(path)]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed run."""
    folder = tmp_path_factory.mktemp("info") / "straight"
    probes.train(folder, *RUN)
    return folder


def test_sums_are_over_every_step_and_last_is_the_last_ones() -> None:
    env = adapt(probes.Goal(), "Goal", action_repeat=3, info_keys={"moved": "sum", "taken": "last", "label": "last"})
    for action in (0.5, -0.25):  # the second episode's sum begins at zero
        env.reset(seed=1)
        infos = []
        ended = False
        while not ended:
            _, _, ended, _, info = env.step(np.array([action], np.float32))
            infos.append(info)
        assert [EPISODE_INFO in info for info in infos] == [False, False, True]
        assert dict(infos[-1][EPISODE_INFO]) == {"moved": 7 * action, "taken": 7.0}


def test_a_run_logs_them(straight: Path) -> None:
    train, evaluated = columns(straight / "train.csv"), columns(straight / "eval.csv")
    *ended, cut_short = train
    assert len(ended) == 14 and cut_short == ("", "", ""), "an episode that the end cuts short has no last step"
    assert {row[0] for row in ended} <= {"0.0", "1.0"} and {row[2] for row in ended} == {"7.0"}
    assert len({row[1] for row in ended}) == len(ended)
    assert len(evaluated) == 3 and {float(row[0]) * 3 % 1 for row in evaluated} == {0.0}


def test_a_run_killed_within_an_episode_goes_on_to_the_same_bytes(tmp_path: Path, straight: Path) -> None:
    run_until(tmp_path / "killed", 66, *RUN)
    go_on(tmp_path / "killed")
    assert_same(tmp_path / "killed", straight)
    assert columns(tmp_path / "killed/train.csv") == columns(straight / "train.csv")


@pytest.mark.thorough
def test_several_environments_give_the_same_in_processes_and_in_the_background(tmp_path: Path) -> None:
    several = (*RUN, "+env_kwargs.num_steps=5", "num_envs=3", "num_train_steps=120")
    probes.train(tmp_path / "here", *several)
    probes.train(tmp_path / "apart", *several, "async_envs=true", "eval_in_background=true")
    for name in ("train.csv", "eval.csv"):
        here, apart = (columns(tmp_path / folder / name) for folder in ("here", "apart"))
        assert here == apart and len([row for row in here if all(row)]) >= 3
