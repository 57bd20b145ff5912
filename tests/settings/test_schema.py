"""Every configuration composes, passes the check, and has the values that were written."""

from functools import cache
from itertools import product

import composed
import pytest
from runs import ROOT

from settings import compose
from utils import UserError


def test_a_critic_by_its_old_name() -> None:
    assert composed.settings("agent.critic._target_=agent.critic.DoubleQCritic").env == "cheetah_run"


def test_numbers_as_people_write_them() -> None:
    for text in ("1e6", "1_000_000", "1000000"):
        checked = composed.settings(f"num_train_steps={text}", "experiment=7")
        assert checked.num_train_steps == checked.replay_buffer_capacity == 1_000_000
        assert type(checked.num_train_steps) is int
        assert checked.experiment == "7"


@cache
def _has_temperature(agent: str) -> bool:
    return "temperature" in compose.compose_config("train", [f"agent={agent}"]).agent


AGENTS, PRESETS = (
    sorted(path.stem for path in (ROOT / "config" / of).glob("[!_]*.yaml")) for of in ("agent", "preset")
)


def _slow(agent: str, preset: str | None) -> bool:
    return not (preset is None or agent in ("sac", "td3", "tqc"))


@pytest.mark.parametrize(
    ("agent", "preset"),
    [
        pytest.param(*pair, marks=pytest.mark.thorough if _slow(*pair) else ())
        for pair in product(AGENTS, [None, *PRESETS])
    ],
)
def test_every_yaml_composes_and_checks(agent: str, preset: str | None) -> None:
    overrides = [f"agent={agent}"] + ([f"preset={preset}"] if preset else [])
    has_temperature = _has_temperature(agent)
    sets_temperature = preset in ("cpu", "fast", "strong", "lunar_lander", "tune", "cartpole", "lunar_lander_discrete")
    distributional = agent in ("tqc", "xqc", "flash_sac")
    if (
        (sets_temperature and not has_temperature)
        or (distributional and preset == "strong")  # the preset sets a scalar head
        or (agent == "sac_discrete" and preset == "lunar_lander")  # the preset sets the actor's standard deviation
    ):
        with pytest.raises(UserError, match=f"preset[=/]{preset}"):
            compose.checked(compose.compose_config("train", overrides), overrides)
    else:
        assert compose.checked(compose.compose_config("train", overrides), overrides).num_train_steps > 0


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["agent=sac"], 1),
        (["agent=redq"], 20),
        (["agent=redq", "updates_per_step=3"], 3),
        (["agent=redq", "preset=cpu"], 2),
    ],
)
def test_an_agent_may_ask_for_more_updates(overrides: list[str], expected: int) -> None:
    cfg = composed.settings(*overrides)
    assert cfg.updates_per_step == expected and "updates_per_step" not in cfg.agent


def test_the_defaults_are_pytorch_sacs() -> None:
    checked = composed.settings()
    agent = checked.agent
    assert (checked.num_train_steps, checked.num_seed_steps, checked.eval_frequency) == (1_000_000, 5000, 10_000)
    assert (checked.num_eval_episodes, checked.log_frequency) == (10, 10_000)
    assert (checked.seed, checked.env) == (1, "cheetah_run")
    assert (agent["discount"], agent["init_temperature"], agent["batch_size"]) == (0.99, 0.1, 1024)
    assert agent["alpha_lr"] == agent["actor_lr"] == agent["critic_lr"] == 1e-4
    assert list(agent["alpha_betas"]) == list(agent["actor_betas"]) == list(agent["critic_betas"]) == [0.9, 0.999]
    assert (agent["critic_tau"], agent["critic_target_update_frequency"]) == (0.005, 2)
    assert agent["critic"]["hidden_dim"] == agent["actor"]["hidden_dim"] == 1024
    assert agent["critic"]["hidden_depth"] == agent["actor"]["hidden_depth"] == 2
    assert list(agent["actor"]["log_std_bounds"]) == [-5, 2]


@pytest.mark.parametrize("value", ["[0.9]", "[0.9,0.9,0.9]", "[]"])
def test_a_list_of_another_length_is_told_its_length(value: str) -> None:
    with pytest.raises(UserError, match=r"^agent\.critic_betas=\[.*\]: a list of 2 values goes here$"):
        composed.settings(f"agent.critic_betas={value}")
