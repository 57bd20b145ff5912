"""What a saved configuration may name: classes of this project where they belong, and those of trusted packages."""

from typing import Any

import composed
import pytest
from parts import AGENTS

from settings.trust import require_trusted
from utils import UserError


@pytest.mark.parametrize("name", AGENTS)
def test_every_configuration_of_this_project_is_trusted(name: str) -> None:
    cfg = composed.settings(f"agent={name}", "replay_buffer=prioritized", "log_save_tb=true", "env=Pendulum-v1")
    nodes = {key: getattr(cfg, key) for key in ("env", "agent", "replay_buffer", "logger", "evaluator")}
    require_trusted(nodes, [], "config.yaml")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"agent": {"_target_": "os.system"}}, r"^x: agent\._target_=os\.system: .*; if you trust it, add trust=os$"),
        ({"agent": {"critic": {"_target_": "utils.write_atomic"}}}, r"agent\.critic\._target_=utils\.write_atomic"),
        ({"agent": {"_target_": "agent.policy.Any"}}, "not a class that is defined there"),
        ({"agent": {"_target_": "agent.networks.mlp.affine"}}, "not a class that is defined there"),
        ({"agent": {"_target_": "sinks.TensorBoardSink"}}, "not a class of this project that belongs there"),
        ({"logger": {"sinks": [{"_target_": "agent.sac.SACAgent"}]}}, r"logger\.sinks\.0\._target_"),
        ({"agent": {"_target_": {"_target_": "os.system"}}}, "no run writes such a key"),
        ({"agent": {"_args_": ["x"]}}, "no run writes such a key"),
        ({"agent": {"_recursive_": False}}, "no run writes such a key"),
        ({"_target_": "os.system"}, "not a class of this project that belongs there"),
        ({"env_wrappers": [{"_target_": "my_packages.Wrapper"}]}, "add trust=my_packages"),
        ({"env_kwargs": {"x": [{"_target_": "torch.load"}]}}, r"env_kwargs\.x\.0\._target_=torch\.load"),
        ({"env": "other:Mine-v0"}, "^x: env=other:Mine-v0 would run code of other; if you trust it, add trust=other$"),
    ],
)
def test_anything_else_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        require_trusted(config, ["my_package"], "x")


def test_what_the_user_trusts_is_not_imported() -> None:
    wrapper = {"_target_": "my_package.inner.Wrapper", "_partial_": True}
    require_trusted({"env": "my_package:Mine-v0", "env_wrappers": [wrapper]}, ["my_package"], "x")
