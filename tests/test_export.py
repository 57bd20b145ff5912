"""Exported files act as the policy, describe it, and run without torch."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import probes
import pytest
from agents import SMALL, make_agent
from runs import HOMELESS, ROOT, RUN, rows

import export
from agent.exported import Greedy, onnx_bytes
from dmc2gym.wrappers import ActionMap
from utils import UserError

LOW, HIGH = np.array([[-2.0, 0.0, 1.0]] * 2), np.array([[2.0, 10.0, 1.5]] * 2)  # of a matrix of six actions
AGENTS = {
    "sac, scaled": ("agent/observation_normaliser=running",),
    "td3": ("agent=td3",),
    "crossq": ("agent=crossq",),
    "self_predictive": ("agent=self_predictive",),
    "flash_sac": ("agent=flash_sac",),
    "simba": ("agent=simba",),
    "mixture": ("agent=sac_2018", "agent.value.hidden_dim=16", "agent.actor.num_components=3"),
}
ALWAYS = ("sac, scaled",)
QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def moved(agent: Any) -> Any:
    """Moves an agent's statistics away from their initial values, as training does."""
    random = np.random.default_rng(0)
    obs = (5 + 3 * random.normal(size=(200, agent.obs_dim))).astype(np.float32)
    if agent.observation_normaliser is not None:
        agent.observation_normaliser.observe(obs)
    for module in agent.policy.actor.modules():
        if hasattr(module, "running_mean"):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return agent


def run_graph(agent: Any, space: Any, obs: np.ndarray) -> np.ndarray:
    graph = onnx_bytes(Greedy(agent.policy, ActionMap(space)), {"obs": obs[:4]})
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    actions = session.run(["action"], {"obs": obs})[0]
    np.testing.assert_allclose(session.run(["action"], {"obs": obs[:1]})[0], actions[:1], atol=1e-5)  # any batch
    return actions


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.thorough) for name in AGENTS]
)
@QUIET
def test_an_exported_policy_acts_as_the_policy(name: str) -> None:
    agent = moved(make_agent(*AGENTS[name], *SMALL))
    obs = (5 + 3 * np.random.default_rng(1).normal(size=(33, agent.obs_dim))).astype(np.float32)
    in_bounds = LOW + (agent.act(obs).reshape(-1, 2, 3).astype(np.float64) + 1) * (HIGH - LOW) / 2
    assert np.ptp(in_bounds[:, 0, 1]) > 0.1  # the actions do differ
    actions = run_graph(agent, gym.spaces.Box(LOW, HIGH, dtype=np.float64), obs)
    np.testing.assert_allclose(actions, in_bounds, atol=1e-4, rtol=0)


@QUIET
def test_discrete_actions_are_exported_as_the_environments_own_integers() -> None:
    agent = make_agent("agent=sac_discrete", *SMALL)
    obs = np.random.default_rng(1).normal(size=(33, agent.obs_dim)).astype(np.float32)
    actions = run_graph(agent, gym.spaces.Discrete(6, start=-2), obs)
    assert actions.dtype == np.int64 and len(set(actions.tolist())) > 1
    np.testing.assert_array_equal(actions, agent.act(obs)[:, 0] - 2)


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an exported run, which tests only read."""
    folder = tmp_path_factory.mktemp("pendulum")
    probes.train(folder, "env=Pendulum-v1", "+env_kwargs.g=9.0", *RUN, "num_train_steps=80", "action_repeat=2")
    export.export(folder)
    return folder


def test_the_description_beside_it(pendulum: Path) -> None:
    path = pendulum / "export/policy.onnx"
    about = json.loads((pendulum / "export/policy.onnx.json").read_text())
    assert about.pop("worst_difference") < 1e-5
    assert about.pop("sha256") == hashlib.sha256(path.read_bytes()).hexdigest()
    last = rows(pendulum / "eval.csv")[-1]
    assert about == {
        "format": "policy-export-2",
        "kind": "onnx",
        "task": "Pendulum-v1",
        "agent": "sac",
        "step": 80,
        "inputs": [{"name": "obs", "shape": ["batch", 3], "dtype": "float32", "keys": [""], "frame_stack": 1}],
        "output": {"name": "action", "shape": ["batch", 1], "dtype": "float32"},
        "action_low": [-2.0],
        "action_high": [2.0],
        "action_dtype": "float32",
        "action_repeat": 2,
        "env_kwargs": {"g": 9.0},
        "env_wrappers": [],
        "control_rate_hz": 20.0,
        "return": {"step": 80, "mean": float(last["episode_reward"]), "std": float(last["episode_reward_std"])},
    }


def test_the_best_policy_and_a_matrix_of_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probes.train(tmp_path, "env=ProbeTuples-v0", *RUN, "num_train_steps=80")
    monkeypatch.setattr(sys, "argv", ["export.py", str(tmp_path), "--best", "--format", "policy"])
    export.main()
    assert "worst difference from the policy over 1000 observations: " in capsys.readouterr().out
    about = json.loads((tmp_path / "export/best.pt.json").read_text())
    assert (about["action_low"], about["action_high"], about["action_dtype"]) == ([[-2], [0]], [[2], [1]], "float64")


def test_nothing_but_an_export_is_replaced(pendulum: Path, tmp_path: Path) -> None:
    packed = export.export(pendulum, "policy", output=tmp_path / "mine.pt")
    assert export.export(pendulum, "policy", output=packed) == packed
    for kind, output in (("onnx", pendulum / "config.yaml"), ("policy", pendulum / "checkpoints/step_80/policy.pt")):
        before = output.read_bytes()
        with pytest.raises(UserError, match="and be new or an earlier export"):
            export.export(pendulum, kind, output=output)
        assert output.read_bytes() == before


def test_what_cannot_be_exported_is_one_line(
    tmp_path: Path, pendulum: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ("env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40", "agent._target_=probes.ActsItself")
    probes.train(tmp_path / "own", *own)
    with pytest.raises(UserError, match="ActsItself acts in its own way, which cannot be exported"):
        export.export(tmp_path / "own", trusted=("probes",))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(sys, "argv", ["export.py", str(pendulum), "--output", str(tmp_path / "new.onnx")])
    with pytest.raises(SystemExit, match=r"^2$"):
        export.main()
    assert "pip install -e '.[export]'" in capsys.readouterr().err and not (tmp_path / "new.onnx").exists()


def test_the_example_plays_it_without_torch(pendulum: Path) -> None:
    script = str(ROOT / "examples/deploy.py")
    code = f"import runpy, sys; sys.modules['torch'] = None; sys.argv = [{script!r}, *sys.argv[1:]]; "
    code += f"runpy.run_path({script!r}, run_name='__main__')"
    arguments = [str(pendulum / "export/policy.onnx"), "--fast", "--episodes", "2"]
    command = [sys.executable, "-P", "-c", code, *arguments]
    ended = subprocess.run(command, cwd=pendulum, env=HOMELESS, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    first, second, mean = ended.stdout.splitlines()
    assert re.fullmatch(r"mean -[\d.]+ over 2 episodes; a call takes [\d.]+ ms", mean)
    returns = [float(line.split()[-1]) for line in (first, second)]
    assert returns == pytest.approx([played(pendulum, seed) for seed in (0, 1)], abs=0.5)  # with the run's env_kwargs


def played(folder: Path, seed: int) -> float:
    """Plays the episode of a seed with the run's own policy; returns its return."""
    found = export.load_run_policy(folder, "cpu")
    env = found.make_env(False)
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(found.actor.act(obs))
        total, over = total + float(reward), terminated or truncated
    return total
