"""Exported files act as the policy and describe it; hostile files run no code."""

import errno
import hashlib
import importlib.util
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import probes
import pytest
import torch
from agents import SMALL, make_agent
from runs import HOMELESS, ROOT, RUN
from strangers import copy_of

import export
from agent import exported
from agent.exported import Greedy, onnx_bytes, torchscript_bytes
from dmc2gym.wrappers import OwnActions
from utils import RunError, UserError

LOW, HIGH = np.array([[-2.0, 0.0, 1.0]] * 2), np.array([[2.0, 10.0, 1.5]] * 2)  # of a matrix of six actions
SCALED = ("agent/observation_normaliser=running",)
AGENTS = {
    "sac, scaled": SCALED,
    "td3": ("agent=td3",),
    "crossq": ("agent=crossq",),
    "flash_sac": ("agent=flash_sac",),
    "simba": ("agent=simba",),
    "mixture": ("agent=sac_2018", "agent.value.hidden_dim=16", "agent.actor.num_components=3"),
}


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


def runner(kind: str, path: Path) -> Callable[[np.ndarray], np.ndarray]:
    if kind == "torchscript":
        program = torch.jit.load(str(path))
        return lambda obs: program(torch.from_numpy(obs)).numpy()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda obs: session.run(["action"], {"obs": obs})[0]


ALWAYS = {("sac, scaled", "onnx"), ("flash_sac", "onnx"), ("mixture", "onnx"), ("mixture", "torchscript")}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if (name, kind) in ALWAYS else pytest.mark.thorough)
        for name in AGENTS
        for kind in ("onnx", "torchscript")
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_exported_policy_acts_as_the_policy_for_any_batch(tmp_path: Path, name: str, kind: str) -> None:
    agent = moved(make_agent(*AGENTS[name], *SMALL))
    obs = (5 + 3 * np.random.default_rng(1).normal(size=(33, agent.obs_dim))).astype(np.float32)
    contents = onnx_bytes if kind == "onnx" else torchscript_bytes
    own_actions = OwnActions(gym.spaces.Box(LOW, HIGH, dtype=np.float64))
    (tmp_path / "policy").write_bytes(contents(Greedy(agent.policy, own_actions), {"obs": obs[:4]}))
    run = runner(kind, tmp_path / "policy")
    in_bounds = LOW + (agent.act(obs).reshape(-1, 2, 3).astype(np.float64) + 1) * (HIGH - LOW) / 2
    assert np.ptp(in_bounds[:, 0, 1]) > 0.1  # the actions do differ
    for batch in (obs, obs[:1], obs[:7]):
        np.testing.assert_allclose(run(batch), in_bounds[: len(batch)], atol=1e-4, rtol=0)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]  # no separate file of weights


@pytest.mark.parametrize("kind", ["onnx", "torchscript"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_discrete_actions_are_exported_as_the_environments_own_integers(tmp_path: Path, kind: str) -> None:
    agent = make_agent("agent=sac_discrete", *SMALL)
    obs = np.random.default_rng(1).normal(size=(33, agent.obs_dim)).astype(np.float32)
    contents = onnx_bytes if kind == "onnx" else torchscript_bytes
    greedy = Greedy(agent.policy, OwnActions(gym.spaces.Discrete(6, start=-2)))
    (tmp_path / "policy").write_bytes(contents(greedy, {"obs": obs[:4]}))
    actions = runner(kind, tmp_path / "policy")(obs)
    assert actions.dtype == np.int64 and len(set(actions.tolist())) > 1
    np.testing.assert_array_equal(actions, agent.act(obs)[:, 0] - 2)


def test_rounding_may_decide_between_equally_probable_actions_alone() -> None:
    agent, own_actions = make_agent("agent=sac_discrete", *SMALL), OwnActions(gym.spaces.Discrete(6, start=-2))
    obs = np.random.default_rng(1).normal(size=(33, agent.obs_dim)).astype(np.float32)

    def difference(action: int) -> float:
        return export.worst_difference(lambda obs: np.full(len(obs), action), agent.policy, obs, own_actions)

    log_probs = agent.policy.log_probs(obs)
    assert difference(3) == pytest.approx((log_probs.max(1) - log_probs[:, 5]).max()) and difference(3) > 0.01
    assert difference(4) >= 1  # there is no such action
    for parameter in agent.actor.parameters():
        parameter.data.zero_()
    assert difference(3) == 0


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an exported run, which tests only read."""
    folder = tmp_path_factory.mktemp("pendulum")
    probes.train(folder, "env=Pendulum-v1", *RUN, "num_train_steps=80", "action_repeat=2")
    export.export(folder)
    return folder


def test_what_is_written_says_what_it_is_of(pendulum: Path) -> None:
    path = pendulum / "export/policy.onnx"
    about = json.loads((pendulum / "export/policy.onnx.json").read_text())
    assert about.pop("worst_difference") < 1e-5
    assert about.pop("sha256") == hashlib.sha256(path.read_bytes()).hexdigest()
    header, *_, last = (pendulum / "eval.csv").read_text().splitlines()
    row = dict(zip(header.split(","), last.split(","), strict=True))
    assert about == {
        "format": "policy-export-1",
        "kind": "onnx",
        "task": "Pendulum-v1",
        "agent": "sac",
        "step": 80,
        "input": {"name": "obs", "shape": ["batch", 3], "dtype": "float32"},
        "output": {"name": "action", "shape": ["batch", 1], "dtype": "float32"},
        "action_low": [-2.0],
        "action_high": [2.0],
        "action_dtype": "float32",
        "action_repeat": 2,
        "env_kwargs": {},
        "env_wrappers": [],
        "control_rate_hz": 20.0,
        "return": {"step": 80, "mean": float(row["episode_reward"]), "std": float(row["episode_reward_std"])},
    }


def test_the_best_policy_and_a_matrix_of_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = probes.train(tmp_path, "env=ProbeTuples-v0", *RUN, "num_train_steps=80")
    monkeypatch.setattr(sys, "argv", ["export.py", str(tmp_path), "--best", "--format", "torchscript"])
    assert export.main() == 0
    assert "worst difference from the policy over 1000 observations: " in capsys.readouterr().out
    path = tmp_path / "export/best.torchscript"
    about = json.loads((tmp_path / "export/best.torchscript.json").read_text())
    assert (about["action_low"], about["action_high"], about["action_dtype"]) == ([[-2], [0]], [[2], [1]], "float64")
    actions = runner("torchscript", path)(np.zeros((5, trained.agent.obs_dim), np.float32))
    assert actions.shape == (5, 2, 1) and (np.abs(actions[:, 0]) <= 2).all() and (actions[:, 1] >= 0).all()


def test_a_file_that_acts_otherwise_is_an_error_and_not_left(
    pendulum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shifted(greedy: Greedy, example: np.ndarray) -> bytes:
        greedy.lowest += 1e-4  # the tolerance, 1e-5 of actions in [-1, 1], is 2e-5 here
        return torchscript_bytes(greedy, example)

    monkeypatch.setattr(export, "torchscript_bytes", shifted)
    with pytest.raises(RunError, match=r"its actions are 5\.\de-05 from the policy's, more than 1e-05"):
        export.export(pendulum, "torchscript", output=tmp_path / "mine")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["onnx", "torchscript"])
def test_a_file_whose_name_is_not_utf8_is_written_and_checked(
    pendulum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = tmp_path / os.fsdecode(b"L\xe4ufer")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system has names in UTF-8 alone")
    monkeypatch.setattr("builtins.print", lambda *_: None)  # a terminal may be unable to show the name
    assert export.export(pendulum, kind, output=folder / "policy").stat().st_size > 1000


def test_what_cannot_be_exported_is_one_line(
    tmp_path: Path, pendulum: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probes.train(
        tmp_path / "own", "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40", "agent._target_=probes.ActsItself"
    )
    with pytest.raises(UserError, match="ActsItself acts in its own way, which cannot be exported"):
        export.export(tmp_path / "own", "torchscript", trusted=("probes",))
    monkeypatch.setattr(sys, "argv", ["export.py", str(tmp_path)])
    assert export.main() == 2 and "no run in it" in capsys.readouterr().err
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"mine: cannot be written \(File exists\)"):
        export.export(pendulum, "torchscript", output=tmp_path / "file/mine")

    with pytest.raises(UserError, match=r"^\.: cannot be written \(not a file\)"):
        export.export(pendulum, "torchscript", output=Path())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for kind in ("policy", "torchscript"):
        with monkeypatch.context() as patched, pytest.raises(UserError, match=r"mine.pt: cannot be written \(No space"):
            patched.setattr(os, "fsync", full)
            export.export(pendulum, kind, output=tmp_path / "mine.pt")
        assert not list(tmp_path.glob("*mine.pt*"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"onnx, onnxscript, onnxruntime missing; pip install -e '\.\[export\]'"):
        export.export(pendulum)


def deploy(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the example in a process that can import neither torch nor this project."""
    script = str(ROOT / "examples/deploy.py")
    code = f"import runpy, sys; sys.modules['torch'] = None; sys.argv = [{script!r}, *sys.argv[1:]]; "
    code += f"runpy.run_path({script!r}, run_name='__main__')"
    command = [sys.executable, "-P", "-c", code, str(path), "--fast", *arguments]
    return subprocess.run(command, cwd=path.parent, env=HOMELESS, capture_output=True, text=True, check=False)


def test_the_example_plays_it_without_torch(pendulum: Path) -> None:
    said = deploy(pendulum / "export/policy.onnx", "--episodes", "2", "--seed", "7")
    assert said.returncode == 0, said.stderr
    first, second, mean, trained, calls = said.stdout.splitlines()
    assert trained.startswith("at its export, after 80 steps of training: mean -")
    assert calls.startswith("a call: median ") and calls.endswith(" ms of 200")  # two steps each, in 2 x 200
    returns = [float(line.split()[-1]) for line in (first, second)]
    # The printed mean is rounded to four decimals, and so are the printed returns whose mean is taken here.
    assert float(mean.split()[1].rstrip(",")) == pytest.approx(np.mean(returns), rel=0, abs=2e-4)
    assert returns == pytest.approx([played(pendulum, seed) for seed in (7, 8)], abs=0.5)


def test_the_example_says_what_it_does_not_know(tmp_path: Path, pendulum: Path) -> None:
    path = copy_of(pendulum / "export/policy.onnx", tmp_path)
    about = path.with_name(f"{path.name}.json")
    about.write_text(json.dumps(json.loads(about.read_text()) | {"env_kwargs": {"g": 9.81}}))
    said = deploy(path)
    assert said.returncode == 0 and said.stderr == (
        "Pendulum-v1: trained with env_kwargs={'g': 9.81}, which this example does not know\n"
    )
    assert deploy(path, "--episodes", "0").stderr == "deploy.py: --episodes 0: 1 or more\n"
    assert runpy.run_path(str(ROOT / "examples/deploy.py"))["GymnasiumTask"]("Pendulum-v1", 0).limit == 200


def played(folder: Path, seed: int) -> float:
    """Plays the episode of a seed with the run's own policy; returns its return."""
    found = export.run_policy.load(folder, "cpu")
    env = found.make_env(False)
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(found.actor.act(obs))
        total, over = total + float(reward), terminated or truncated
    return total


def changed(**values: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        beside = path.with_name("policy.onnx.json")
        beside.write_text(json.dumps(json.loads(beside.read_text()) | values))

    return change


def pipe(path: Path) -> None:
    beside = path.with_name("policy.onnx.json")
    beside.unlink()
    os.mkfifo(beside)


def linked(path: Path) -> None:
    beside = path.with_name("policy.onnx.json")
    beside.symlink_to(beside.rename(path.with_name("elsewhere.json")))


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 99)
    changed(sha256=hashlib.sha256(path.read_bytes()).hexdigest())(path)


OBS = {"name": "obs", "shape": ["batch", 3], "dtype": "float32"}
HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a package": (changed(task="evil_module:Thing-v0"), "evil_module:Thing-v0: would import a package"),
    "no task": (changed(task="evil_module.Thing"), "no such task here"),
    "another shape": (changed(action_low=[0.0, 0.0]), "gives actions of shape (1,)"),
    "another task's": (changed(task="MountainCarContinuous-v0"), "its observations are (2,) here"),
    "another graph's": (changed(sha256="0"), "not what export.py writes of policy.onnx"),
    "no number": (changed(control_rate_hz="fast"), "not what export.py writes of policy.onnx (control_rate_hz)"),
    "a number as text": (changed(control_rate_hz="20"), "not what export.py writes of policy.onnx (control_rate_hz)"),
    "a vast observation": (
        changed(input={"name": "obs", "shape": [1, 10**10], "dtype": "float32"}),
        "not what export.py writes of policy.onnx (input)",
    ),
    "a huge shape": (
        changed(input={"name": "obs", "shape": [1, float("inf")], "dtype": "float32"}),
        "not what export.py",
    ),
    "a vast stack in the first of two inputs": (
        changed(inputs=[OBS | {"frame_stack": 10**9}, OBS | {"name": "other"}]),
        "not what export.py writes of policy.onnx (frame_stack)",
    ),
    "a key of the first of two inputs": (
        changed(inputs=[OBS | {"keys": [1]}, OBS | {"name": "other"}]),
        "not what export.py writes of policy.onnx (keys)",
    ),
    "a stack as text": (changed(inputs=[OBS | {"frame_stack": "1"}]), "of policy.onnx (frame_stack)"),
    "two inputs of one name": (changed(inputs=[OBS, OBS]), "of policy.onnx (input)"),
    "ragged bounds": (changed(action_low=[[0.0], 0.0]), "not what export.py writes"),
    "no type": (changed(action_dtype="numbers"), "not what export.py writes"),
    "a return of no number": (changed(**{"return": {"step": 1, "mean": "much"}}), "not what export.py writes"),
    "a return as text": (changed(**{"return": {"step": 1, "mean": "5"}}), "not what export.py writes"),
    "a return that is infinite": (changed(**{"return": {"step": 1, "mean": -float("inf")}}), "not what export.py"),
    "a return of no step": (changed(**{"return": {"mean": 5.0}}), "not what export.py writes"),
    "of images": (changed(input={"name": "obs", "shape": [1, 3], "dtype": "uint8"}), "policy.onnx: takes images"),
    "a pipe": (pipe, "policy.onnx.json: No such file"),
    "a link": (linked, "policy.onnx.json: No such file"),
    "a terabyte": (lambda path: os.truncate(path, 2**40), "policy.onnx: more than 2,147,483,648 bytes"),
    "no graph": (garbage, "policy.onnx: cannot be run"),
    "a deep JSON": (lambda path: path.with_name("policy.onnx.json").write_text("[" * 99_999), "not what export.py"),
    "no JSON": (lambda path: path.with_name("policy.onnx.json").unlink(), "policy.onnx.json: No such file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_export_runs_nothing_and_is_one_line(
    name: str,
    pendulum: Path,
    mark: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = copy_of(pendulum / "export/policy.onnx", tmp_path)
    change, message = HOSTILE[name]
    change(path)
    monkeypatch.setattr(sys, "argv", ["deploy.py", str(path), "--fast"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples/deploy.py"), run_name="__main__")
    said = capsys.readouterr().err
    assert ended.value.code == 2 and message in said and said.count("\n") == 1, said
    assert not mark.exists()


def test_checking_a_graph_reports_nothing_to_anybody(pendulum: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    export._load("onnx", pendulum / "export/policy.onnx", None, lambda obs: {"obs": obs})
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


def test_the_exporter_is_quiet_and_leaves_its_logger_as_it_was() -> None:
    logger = exported.logging.getLogger("torch.onnx")
    logger.setLevel(exported.logging.INFO)
    with exported._quiet():
        assert logger.level == exported.logging.ERROR
    assert logger.level == exported.logging.INFO
