"""A node of another class replaces the old one, in a run, in a sweep and when runs are resumed."""

import argparse
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probes
import pytest
import yaml
from runs import SILENT

from run.saving import resume
from settings import compose
from settings.schema import check
from utils import UserError

QUANTILES = "{_target_: agent.networks.QuantileHead, _partial_: true, num_quantiles: 7}"
BINS = "{_target_: agent.networks.CategoricalHead, _partial_: true, num_bins: 5}"
BINS_NODE = {"_target_": "agent.networks.CategoricalHead", "_partial_": True, "num_bins": 5}


def agent(*overrides: str) -> Any:
    return check(compose.plain(compose.compose_config("train", list(overrides)))).agent


@pytest.mark.parametrize("sign", ["", "+", "++"])
def test_another_class_replaces_a_node_and_the_same_one_is_merged(sign: str) -> None:
    assert agent("agent=tqc", f"{sign}agent.critic.head={BINS}")["critic"]["head"] == BINS_NODE
    merged = agent("agent=tqc", f"{sign}agent.critic.head={QUANTILES}")["critic"]["head"]
    assert (merged["num_quantiles"], merged["drop_per_critic"]) == (7, 2)
    assert agent(f"{sign}agent.critic.head={BINS}")["critic"]["head"] == BINS_NODE  # where there was no head


def test_so_do_nodes_in_what_is_given_and_the_keys_around_them_stay() -> None:
    norm = "{_target_: agent.networks.BatchNorm, _partial_: true}"
    block = f"{{_target_: agent.networks.PostNormBlock, _partial_: true, norm: {norm}}}"
    network = agent("agent=simba", f"agent.critic={{network: {{block: {block}, unit_length: true}}}}")["critic"][
        "network"
    ]
    assert network["_target_"] == "agent.networks.Residual" and network["unit_length"]
    assert network["last_norm"]["_target_"] == "agent.networks.LayerNorm"
    assert network["block"].keys() == {"_target_", "_partial_", "norm"}  # the old block's expansion is gone
    assert network["block"]["norm"]["_target_"] == "agent.networks.BatchNorm"


def test_runs_of_a_sweep_and_what_continues_them(tmp_path: Path, command: Callable[..., int]) -> None:
    tiny = ("num_train_steps=40", "num_seed_steps=30", "agent.critic.num_critics=2")
    overrides = ("env=ProbeTimeLimit-v0", *probes.SMALL, "checkpoint_frequency=20", *tiny, f"agent.critic.head={BINS}")
    assert command("-m", "agent=sac,tqc", *overrides, "hydra.sweep.dir=sw", *SILENT) == 0
    for name in ("sac", "tqc"):
        head = yaml.safe_load((tmp_path / f"sw/agent-{name}/config.yaml").read_text())["agent"]["critic"]["head"]
        assert {key: head[key] for key in BINS_NODE} == BINS_NODE and "num_quantiles" not in head
    folder = tmp_path / "sw/agent-tqc"
    assert resume.continuation(folder, ["agent=tqc", *overrides]).cfg.agent["critic"]["head"]["num_bins"] == 5
    with pytest.raises(UserError, match=r"agent.critic.head.\S+=\S+ would change the run"):
        resume.continuation(folder, ["agent=tqc", *overrides[:-1], f"agent.critic.head={QUANTILES}"])


def test_hydras_options_are_parsed_where_argparse_looks_into_help_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    add = ArgumentParser.add_argument

    def check(parser: ArgumentParser, action: argparse.Action) -> None:  # as Python 3.14 does
        if action.help and not isinstance(action.help, str):
            raise ValueError("badly formed help string")

    def add_and_check(parser: Any, *args: Any, **kwargs: Any) -> argparse.Action:
        action = add(parser, *args, **kwargs)
        parser._check_help(action)
        return action

    monkeypatch.setattr(argparse._ActionsContainer, "_check_help", check, raising=False)
    monkeypatch.setattr(ArgumentParser, "add_argument", add_and_check)
    assert sys.modules["hydra.main"].get_args_parser().parse_args(["--multirun", "seed=1,2"]).multirun
    with pytest.raises(ValueError, match="badly formed"):
        ArgumentParser().add_argument("--lazy", help=object())  # type: ignore[arg-type]  # other parsers are still checked


def test_keys_of_a_class_that_the_command_line_names_need_no_plus() -> None:
    named, key = "agent.critic._target_=my_package.Critic", "agent.critic.extra=3"
    for overrides in ([named, key], [key, named]):
        node = compose.plain(compose.compose_config("train", overrides))["agent"]["critic"]
        assert (node["_target_"], node["extra"]) == ("my_package.Critic", 3)
    for closed in (["agent.critic.extra=3"], ["agent.actor.extra=3", named]):
        with pytest.raises(UserError, match="unknown key"):
            compose.compose_config("train", closed)
