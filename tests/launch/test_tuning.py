"""preset=tune: search spaces, failed and pruned trials, and killed studies that go on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from kills import Killed
from omegaconf import OmegaConf
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from launch import tuning
from run.loop import Loop

# An episode's return is five times its pay. A learning rate of 1e30 leads to nan.
TINY = (
    *("preset=tune", "env=ProbeTimeLimit-v0", "+env_kwargs.pay=interval(0,1)", "num_eval_episodes=1", "device=cpu"),
    *("num_train_steps=130", "num_seed_steps=100", "eval_frequency=110", "checkpoint_frequency=50", "num_threads=1"),
    *("save_video=false", "save_figure=false", "log_save_tb=false", "agent.batch_size=8", "agent.critic.hidden_dim=8"),
    *("agent.critic_lr=1e-3,1e30", "agent.critic_tau=0.01", "reward_scale=1", "updates_per_step=1", "execution=eager"),
    *("hydra.sweeper.n_trials=5", "hydra.sweeper.sampler.n_startup_trials=1", "hydra.sweeper.sampler.seed=4"),
    *("hydra/sweeper/pruner=median", "hydra.sweeper.pruner.n_startup_trials=1"),
)


def read_trials(folder: Path) -> list[Any]:
    storage = JournalStorage(JournalFileBackend(str(folder / "study.log")))
    trials = optuna.load_study(study_name="tuning", storage=storage).trials
    return [(trial.state.name, trial.values, trial.params, trial.intermediate_values) for trial in trials]


@pytest.mark.thorough
def test_a_study_that_is_killed_twice_ends_as_one_that_was_not(
    tmp_path: Path, command: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(*TINY, "hydra.sweep.dir=straight") == 0
    end_episodes = Loop.end_episodes
    for number in (1, 2):

        def die(loop: Loop, *ended: Any, number: int = number) -> None:
            if loop.workspace.work_dir.name == f"trial_{number}" and loop.progress.step > 60:
                raise Killed
            end_episodes(loop, *ended)

        with monkeypatch.context() as patched:
            patched.setattr(Loop, "end_episodes", die)
            patched.setattr(tuning, "lock", lambda path: 0)  # which this process would go on to hold
            with pytest.raises(Killed):
                command(*TINY, "hydra.sweep.dir=killed", *(["resume=auto"] if number > 1 else []))
    monkeypatch.setattr(tuning, "lock", lambda path: 0)
    assert command(*TINY, "hydra.sweep.dir=killed", "resume=auto") == 0
    made = read_trials(tmp_path / "straight")
    assert read_trials(tmp_path / "killed") == made and len(made) == 5
    assert {state for state, *_ in made} == {"COMPLETE", "PRUNED", "FAIL"}
    best = OmegaConf.load(tmp_path / "killed/optimization_results.yaml")
    assert best.best_value == max(values[0] for state, values, *_ in made if state == "COMPLETE")
    pruned = [number for number, (state, *_) in enumerate(made) if state == "PRUNED"]
    assert json.loads((tmp_path / f"killed/trial_{pruned[0]}/finished.json").read_text())["pruned"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1,2", CategoricalDistribution([1, 2])),
        ("a=int(interval(1,3))", IntDistribution(1, 3)),
        ("a=tag(log,interval(1e-4,3e-3))", FloatDistribution(1e-4, 3e-3, log=True)),
        ("a=range(1,6)", IntDistribution(1, 5)),
        ("a=choice(x,'y z')", CategoricalDistribution(["x", "y\\ z"])),
    ],
)
def test_a_range_becomes_a_distribution(text: str, expected: Any) -> None:
    (override,) = OverridesParser.create().parse_overrides([text])
    assert tuning._make_distribution(override) == expected
