"""Runs with the user's own classes are resumed and evaluated only if the classes' package is trusted."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import probes
import pytest
from runs import RUN

import evaluate
from run.saving import trust
from utils import UserError

OWN = """
import gymnasium
import numpy as np
from agent.sac import SACAgent
from replay_buffer import ReplayBuffer
from sinks.sink import Sink

class MyAgent(SACAgent): ...
class MyBuffer(ReplayBuffer): ...
class MySink(Sink): ...

class MyEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}
    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}

def make(**given): ...

gymnasium.register("Mine-v0", MyEnv, max_episode_steps=5)
"""


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_package.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    return "my_package"


def test_the_users_classes_are_resumed_and_evaluated_with_a_flag(
    tmp_path: Path,
    own_package: str,
    command: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "run"
    own = (
        *("env=my_package:Mine-v0", "agent._target_=my_package.MyAgent", "replay_buffer._target_=my_package.MyBuffer"),
        "+logger.sinks.mine={_target_: my_package.MySink, _partial_: true}",
    )
    begun = (*own, *probes.SMALL, *RUN, f"hydra.run.dir={folder}", "resume=auto")
    begun = (*begun, "hydra/job_logging=none", "hydra/hydra_logging=none")
    assert command(*begun, "num_train_steps=60") == 0
    capsys.readouterr()
    assert command(f"resume={folder}", "num_train_steps=70") == 2
    assert "if my_package is yours, add trust=my_package" in capsys.readouterr().err
    assert command(f"resume={folder}", "num_train_steps=70", "trust=my_package") == 0
    assert command(*begun, "num_train_steps=80") == 0  # names the classes itself, so needs no trust=
    fewer = [text for text in begun if text not in own]
    assert command(*fewer, "num_train_steps=90") == 2
    assert command(*fewer, "num_train_steps=90", "trust=other,my_package") == 0
    for trusted, code in (([], 2), (["--trust", "other"], 2), (["--trust", "other", "--trust", "my_package"], 0)):
        monkeypatch.setattr(sys, "argv", ["evaluate.py", str(folder), "--no-video", *trusted])
        assert evaluate.main() == code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trust=", "resume=x"], "trust=: the name of a package"),
        (["trust=os", "resume=x"], "trust=os: the name of a package or a module of your own"),
        (["trust=a b", "resume=x"], "trust=a b: the name"),
        (["trust=mine"], "trust=mine: it goes with resume="),
    ],
)
def test_mistakes_in_what_is_trusted(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert command(*arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "target", ["my_package.make", "my_package.np.load", "my_package.gymnasium", "my_package.SACAgent", "my_packages.X"]
)
def test_only_classes_defined_in_a_trusted_package_are_trusted(own_package: str, target: str) -> None:
    with pytest.raises(UserError, match=r"so it is not run|cannot be imported"):
        trust.require({"agent": {"_target_": target}}, Path("config.yaml"), [own_package])


def test_a_list_of_nodes_is_for_trusted_classes_only(own_package: str) -> None:
    layers = {"layers": [{"_target_": "agent.networks.LayerNorm", "_partial_": True}]}
    trust.require({"agent": {"_target_": "my_package.MyAgent", **layers}}, Path("x"), [own_package])
    with pytest.raises(UserError, match=r"agent\.layers\.0\._target_=.*no class that belongs there"):
        trust.require({"agent": {"_target_": "agent.sac.SACAgent", **layers}}, Path("x"), [own_package])


def test_every_configuration_of_this_project_can_be_resumed() -> None:
    import composed

    for path in sorted((Path(__file__).parents[2] / "config/agent").glob("[!_]*.yaml")):
        config = composed.settings(f"agent={path.stem}", "log_save_tb=true", "env=Pendulum-v1")
        trust.require({"agent": config.agent, "logger": config.logger, "evaluator": config.evaluator}, path)


def test_a_package_that_is_not_found_says_how_to_name_its_folder() -> None:
    with pytest.raises(
        UserError, match=r"cannot be imported \(No module named 'my_lab'\); .*: PYTHONPATH=/path/to/fold"
    ):
        trust.require({"agent": {"_target_": "my_lab.Agent"}}, Path("config.yaml"), ["my_lab"])
