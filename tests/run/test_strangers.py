"""Resuming or evaluating a run with a stranger's files executes none of their code."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from strangers import Evil

from agent.policy import load_policy
from run.checkpoint import read_newest
from run.resume import load_settings
from run.run_policy import load_run_policy
from utils import UserError

EVIL = {"_target_": "torch.load", "f": "evil.pkl", "weights_only": False}
CONFIGURATIONS: dict[str, tuple[str, Any]] = {  # a key of config.yaml, and its value; test_trust.py has more
    "an argument in a list": ("agent/reward_scale", {"_target_": "agent.schedule.Piecewise", "points": [[0, EVIL]]}),
    "an environment's module": ("env", "evil_module:ProbeTimeLimit-v0"),
}


@pytest.mark.parametrize("case", CONFIGURATIONS)
@pytest.mark.parametrize("use", [load_settings, load_run_policy])
def test_a_strangers_configuration_runs_no_code(
    copied: Path, mark: Path, case: str, use: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied.parent)
    torch.save(Evil(mark), "evil.pkl")
    path, (key, value) = copied / "config.yaml", CONFIGURATIONS[case]
    config = yaml.safe_load(path.read_text())
    *parents, last = key.split("/")
    node = config
    for parent in parents:
        node = node[parent]
    node[last] = value
    path.write_text(yaml.safe_dump(config))
    with pytest.raises((UserError, ImportError)):
        use(copied)
    assert not mark.exists() and "evil_module" not in sys.modules


def test_a_yaml_tag_and_an_interpolation_run_no_code(copied: Path, mark: Path) -> None:
    path = copied / "config.yaml"
    text = path.read_text()
    for hostile in (f"!!python/object/apply:os.mkdir [{mark}]", "${oc.env:HOME}"):
        path.write_text(text.replace("experiment: ", f"hostile: {hostile}\nexperiment: "))
        with pytest.raises((UserError, yaml.YAMLError)):
            load_settings(copied)
    assert not mark.exists()


def test_a_strangers_policy_runs_no_code(tmp_path: Path, mark: Path) -> None:
    torch.save({"format": "policy-2", "networks": Evil(mark)}, tmp_path / "policy.pt")
    with pytest.raises(UserError):
        load_policy(tmp_path / "policy.pt")
    assert not mark.exists()


def test_the_users_classes_are_used_if_their_package_is_named(copied: Path) -> None:
    path = copied / "config.yaml"
    path.write_text(path.read_text().replace("env: ProbeTimeLimit-v0", "env: probes:ProbeTimeLimit-v0"))
    with pytest.raises(UserError, match="trust=probes"):
        load_settings(copied)
    assert load_settings(copied, ["probes"]).env == "probes:ProbeTimeLimit-v0"


def test_the_small_run_itself_is_accepted(copied: Path) -> None:
    assert load_settings(copied).seed == 1
    assert read_newest(copied, "agent", identity={}).manifest["step"] == 60
