"""Mistakes in the user's presets and agents are one line that names the file."""

import re
from pathlib import Path

import pytest

from settings.compose import compose_config, plain, searching
from utils import UserError

GLOBAL = "# @package _global_\n"


def composed(folder: Path, group: str, text: str, overrides: str) -> dict[str, object]:
    (folder / group).mkdir()
    (folder / group / "mine.yaml").write_text(text, encoding="utf-8")
    return plain(compose_config("train", [overrides, searching([folder])]))


@pytest.mark.parametrize(
    ("group", "text", "fault"),
    [
        ("preset", "", "keys go here, such as num_train_steps: 100_000"),
        ("preset", "- a\n- b\n", "keys go here"),
        ("preset", "num_train_steps: 300\n", "its first line has to be # @package _global_"),
        ("preset", f"# Mine.\n{GLOBAL}num_train_steps: 300\n", "its first line has to be # @package _global_"),
        ("preset", f"{GLOBAL}agent: sac\n", "agent: sac: it is chosen in the list of defaults, - override /agent: sac"),
        ("preset", f"{GLOBAL}defaults:\n  - /agent: tqc\n", "agent: tqc: it is chosen in the list of defaults"),
        ("preset", f"{GLOBAL}defaults:\n  - override agent: tqc\n", "agent: tqc: it is chosen in the list of defaults"),
        ("preset", f"{GLOBAL}agent.batch_size: 64\n", "agent.batch_size: a dot .* write agent: {batch_size: ...}"),
        (
            "preset",
            f"{GLOBAL}agent: {{params: {{actor_lr: 1e-4}}}}\n",
            "agent.params.actor_lr: that is called agent.actor_lr here",
        ),
        ("preset", f"{GLOBAL}defaults: [_self_, cpu]\nseed: 3\n", "cpu stands behind _self_ and would replace"),
        ("agent", "defaults: [_self_, sac]\nname: mine\n", "sac stands behind _self_ and would replace .* _self_ last"),
        ("preset", f"{GLOBAL}defaults: {{_self_: null}}\nseed: 3\n", r"defaults: a list of names goes here"),
        ("preset", f"{GLOBAL}defaults: _self_\nseed: 3\n", r"defaults: a list of names goes here"),
        ("agent", "defaults: [3, _self_]\nname: mine\n", r"defaults: a list of names goes here"),
        ("agent", "name: mine\nbatch.size: 3\n", "batch.size: a dot .* write batch: {size: ...}"),
    ],
)
def test_a_mistake_names_the_file(tmp_path: Path, group: str, text: str, fault: str) -> None:
    chosen = f"{group}=[cpu,mine]" if group == "preset" else f"{group}=mine"
    with pytest.raises(UserError, match=f"^{re.escape(str(tmp_path / group / 'mine.yaml'))}: {fault}"):
        composed(tmp_path, group, text, chosen)


def test_a_preset_may_choose_an_agent_and_build_on_another_preset(tmp_path: Path) -> None:
    text = f"{GLOBAL}# Mine.\ndefaults:\n  - cpu\n  - override /agent: tqc\n  - _self_\nagent: {{batch_size: 64}}\n"
    values = composed(tmp_path, "preset", text, "preset=mine")
    agent = values["agent"]
    assert isinstance(agent, dict)
    assert (agent["name"], agent["batch_size"], values["num_threads"]) == ("tqc", 64, 1)


def test_an_agent_may_change_another(tmp_path: Path) -> None:
    text = "defaults: [tqc, _self_, override exploration: held]\nname: mine\nbatch_size: 64\n"
    agent = composed(tmp_path, "agent", text, "agent=mine")["agent"]
    assert isinstance(agent, dict)
    assert (agent["name"], agent["batch_size"]) == ("mine", 64) and agent["exploration"]


def test_yaml_that_cannot_be_read_is_left_to_hydra(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mine\.yaml.*, line 2"):
        composed(tmp_path, "preset", f"{GLOBAL}\tagent: 3\n", "preset=mine")
