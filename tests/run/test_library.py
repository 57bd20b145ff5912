"""The library: train.py's loop for a given agent and environment, and agents saved in files."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import probes
import pytest
import torch
from agents import Silent, make_agent
from forks import ForkAgent
from own_buffers import PrioritisedBuffer
from strangers import Evil

from agent.actor import DiagGaussianActor
from agent.critic import CriticEnsemble
from agent.execution.eager import Eager
from agent.networks import LayerNorm, NormedMLP
from agent.sac import SACAgent
from agent.schedule import Linear
from agent.temperature import LearnedTemperature
from logger import Logger
from replay_buffer import ReplayBuffer
from run import machine
from run.evaluation.evaluator import Evaluation
from run.library import evaluate, load, save, shapes, train
from sinks.csv_files import CsvSink
from utils import EnvError, UserError

CPU = torch.device("cpu")
SIZE = {"hidden_dim": 16, "hidden_depth": 1}


def make(env: gym.Env, **values: Any) -> SACAgent:
    parts = {
        "actor": partial(DiagGaussianActor, log_std_bounds=(-5, 2), **SIZE),
        "critic": partial(CriticEnsemble, **SIZE),
        "temperature": LearnedTemperature,
    }
    rates = {"actor_lr": 1e-2, "critic_lr": 1e-2, "alpha_lr": 1e-2, "batch_size": 32}
    return SACAgent(**(shapes(env, "cpu") | parts | rates | values))


def test_an_agent_learns_what_a_probe_rewards() -> None:
    env = gym.make("ProbeActionMatters-v0")
    agent = make(env)
    came = train(agent, env, num_steps=600, num_seed_steps=100)
    assert (came.steps, came.episodes, len(came.replay_buffer)) == (600, 600, 600)
    assert agent.act(np.zeros((1, 1), np.float32)).item() == pytest.approx(0.5, abs=0.1)
    assert agent.num_updates == 500
    assert np.mean(evaluate(agent, env, episodes=5)) > -0.01


def test_without_replacement_the_first_update_waits_for_a_batch() -> None:
    env = gym.make("ProbeActionMatters-v0")
    agent, buffer = make(env), ReplayBuffer((1,), (1,), 50, CPU, with_replacement=False)
    train(agent, env, num_steps=40, num_seed_steps=0, replay_buffer=buffer)
    assert agent.num_updates == 40 - 32


def test_a_later_call_continues_with_agent_and_buffer() -> None:
    """With unscaled action bounds, environments that stay open, held actions, and a buffer that was filled before."""
    envs = [gym.make("Pendulum-v1") for _ in range(2)]
    agent = make(envs[0])
    first = train(agent, envs, 80, num_seed_steps=40, action_repeat=2, execution="eager")
    assert first.steps == 80 and first.replay_buffer.num_added == 40 and agent.num_updates == 20
    assert np.abs(first.replay_buffer.rows[:40, 3]).max() <= 1
    again = train(agent, envs[1], 20, num_seed_steps=0, replay_buffer=first.replay_buffer, seed=2, execution="eager")
    assert again.replay_buffer is first.replay_buffer and again.replay_buffer.num_added == 60
    assert agent.num_updates == 40
    envs[0].step(np.zeros(1))


def test_the_loop_is_that_of_train_py(tmp_path: Path) -> None:
    run = probes.train(tmp_path / "run", "env=ProbeDrawn-v0", "num_train_steps=150", "num_seed_steps=60", "seed=3")
    torch.manual_seed(3)
    env = gym.make("ProbeDrawn-v0")
    torch.manual_seed(3)
    networks = {name: node for name, node in run.agent.made_with[1].items() if name not in shapes(env)}
    agent = SACAgent(**shapes(env, "cpu"), **networks)
    came = train(agent, env, 150, num_seed_steps=60, seed=3, execution="eager")
    np.testing.assert_array_equal(came.replay_buffer.rows, run.replay_buffer.rows)
    assert all(map(torch.equal, agent.critic.parameters(), run.agent.critic.parameters()))


def test_an_environments_own_limit_is_kept() -> None:
    class Long(gym.Wrapper):
        def step(self, action: Any) -> Any:
            return np.zeros(1, np.float32), 0.0, False, False, {}

    unregistered = Long(gym.make("ProbeTimeLimit-v0").unwrapped)
    unregistered.unwrapped.spec = None
    for limit, episodes in ((None, 2), (2000, 1)):
        env = gym.wrappers.TimeLimit(unregistered, limit) if limit else unregistered
        assert train(make(env), env, 2000, num_seed_steps=2000).episodes == episodes


def test_a_later_call_may_run_eagerly() -> None:
    env = gym.make("ProbeTimeLimit-v0")
    agent = make(env)
    train(agent, env, 60, num_seed_steps=40)
    assert not isinstance(agent.execution, Eager)
    train(agent, env, 60, num_seed_steps=40, execution="eager")
    assert isinstance(agent.execution, Eager) and agent.policy.choose == agent.policy.actions


def test_the_users_logger_evaluator_and_checkpoints(tmp_path: Path) -> None:
    class Steps:
        def evaluate(self, agent: Any, step: int) -> Evaluation:
            return Evaluation([float(step)], [1])

    env, saved = gym.make("ProbeTimeLimit-v0"), []
    logs = tmp_path / "logs" / "mine"
    logger = Logger(logs, {"csv": CsvSink})
    own = {
        "execution": "eager",
        "evaluator": Steps(),
        "eval_frequency": 40,
        "checkpoint": saved.append,
        "checkpoint_frequency": 30,
    }
    came = train(make(env), env, 100, num_seed_steps=20, logger=logger, **own)
    logger.close()
    assert came.last_return == 100 and saved == [0, 30, 60, 90, 100]
    assert [line.split(",")[1:3] for line in (logs / "eval.csv").read_text().splitlines()[1:]] == [
        ["40", "40.0"], ["80", "80.0"], ["100", "100.0"]
    ]  # fmt: skip
    assert (logs / "train.csv").read_text().count("\n") == 21


def test_sampled_and_greedy_evaluations_leave_the_agent_as_it_is() -> None:
    env = gym.make("ProbeActionMatters-v0")
    agent = make(env)
    before = agent.policy.generator.get_state()
    greedy, sampled = evaluate(agent, env, 3), evaluate(agent, env, 3, sample=True)
    assert greedy == evaluate(agent, env, 3) != sampled == evaluate(agent, env, 3, True)
    assert torch.equal(agent.policy.generator.get_state(), before) and agent.training


OWN = """
import torch
from agent.networks import LayerNorm
from agent.sac import SACAgent

class MyNorm(LayerNorm): ...

class MyAgent(SACAgent):
    def __init__(self, colour: str = "red", **sac):
        super().__init__(**sac)
        self.colour = colour

class Falling:
    def __init__(self, start: float):
        self.start = start
    def __call__(self, step):
        return self.start / (1 + step)

def make_norm(**kwargs):
    return LayerNorm(**kwargs)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    import own_parts

    yield own_parts
    sys.modules.pop("own_parts", None)


def own_agent(env: gym.Env, own: Any) -> Any:
    network = partial(NormedMLP, norm=own.MyNorm)
    parts = {"critic": partial(CriticEnsemble, network=network, **SIZE), "actor_lr": own.Falling(1e-2)}
    given = vars(make(env, **parts))["made_with"][1]
    return own.MyAgent(colour="blue", **given)


def test_a_loaded_agent_acts_and_learns_as_the_one_that_was_saved(tmp_path: Path, own: Any) -> None:
    env = gym.make("Pendulum-v1")
    agent = own_agent(env, own)
    buffer = train(agent, env, 90, num_seed_steps=50).replay_buffer
    save(agent, tmp_path / "agent.pt")
    with pytest.raises(UserError, match=r"own_parts.*trusted=\['own_parts'\]"):
        load(tmp_path / "agent.pt")
    loaded = load(tmp_path / "agent.pt", "cpu", trusted=["own_parts"])
    assert type(loaded) is own.MyAgent and loaded.colour == "blue" and loaded.num_updates == agent.num_updates == 40
    obs, rng = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32), buffer.state_dict()
    for one in (agent, loaded):
        buffer.load_state_dict(rng)
        for step in range(90, 100):
            one.update(buffer, Silent(), step)
    for sample in (False, True, True):
        np.testing.assert_array_equal(agent.act(obs, sample), loaded.act(obs, sample))
    assert str(agent.state_dict()) == str(loaded.state_dict())
    save(loaded, tmp_path / "again.pt")
    assert str(load(tmp_path / "again.pt", "cpu", trusted=["own_parts"]).state_dict()) == str(agent.state_dict())
    assert not list(tmp_path.glob(".*.part*"))


@pytest.mark.parametrize("kind", ["crossq", "tqc", "flash_sac", "td3", "sac_v", "sac_2018"])
def test_every_agent_of_a_run_can_be_saved_whole(tmp_path: Path, kind: str) -> None:
    agent = make_agent(f"agent={kind}", "agent.critic.hidden_dim=16", "agent.actor.hidden_dim=16")
    save(agent, tmp_path / "agent.pt")
    assert str(load(tmp_path / "agent.pt", "cpu").state_dict()) == str(agent.state_dict())


def forged(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    saved = torch.load(path, weights_only=True)
    change(saved)
    torch.save(saved, path)


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a function": (lambda it: it["agent"].update(critic={"_target_": "os.mkdir", "path": "MARK"}), "os.mkdir: none of"),
    "an agent that is none": (
        lambda it: it["agent"].update(_target_="run.saving.folder.Lock"),
        "no class that belongs there",
    ),
    "a node where none goes": (
        lambda it: it["agent"].update(batch_size={"_target_": "agent.schedule.Linear"}),
        "agent.batch_size=.*a plain value goes here",
    ),
    "a wrong value": (lambda it: it["agent"].update(batch_size=-1), "agent.batch_size=-1: it should be greater than 0"),
    "a key that there is not": (lambda it: it["agent"].update(batchsize=1), "agent.batchsize=1: unknown key"),
    "huge networks": (lambda it: it["agent"]["critic"].update(hidden_dim=10**7), "more weights than"),
    "huge observations": (lambda it: it["shapes"].update(obs_dim=10**9), "more weights than"),
    "shapes that are none": (lambda it: it["shapes"].update(obs_dim=-1), "not a saved agent, or damaged"),
    "another format": (lambda it: it.update(format="agent-0"), "not a saved agent, or damaged"),
    "another's state": (lambda it: it["state"].pop("actor"), "its state does not fit"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_strangers_file_runs_nothing_and_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "agent.pt"
    save(make(gym.make("Pendulum-v1")), path)
    change, said = HOSTILE[case]
    forged(path, change)
    with pytest.raises(UserError, match=said) as caught:
        load(path, "cpu")
    assert "\n" not in str(caught.value) and [file.name for file in tmp_path.iterdir()] == ["agent.pt"]


def test_an_untrusted_pickle_is_not_loaded(tmp_path: Path) -> None:
    torch.save({"format": "agent-1", "agent": Evil(tmp_path / "MARK")}, tmp_path / "agent.pt")
    with pytest.raises(UserError, match="not a saved agent"):
        load(tmp_path / "agent.pt")
    assert not (tmp_path / "MARK").exists()


class Defined(LayerNorm): ...


def test_what_could_not_be_loaded_again_is_not_saved(tmp_path: Path, own: Any) -> None:
    class Local(LayerNorm): ...

    env = gym.make("Pendulum-v1")
    for norm, said in ((Local, "Local cannot be imported"), (own.make_norm, "norm=<function make_norm")):
        critic = partial(CriticEnsemble, network=partial(NormedMLP, norm=norm), **SIZE)
        with pytest.raises(UserError, match=f"agent.pt: critic.network.norm.*{said[-20:]}"):
            save(make(env, critic=critic), tmp_path / "agent.pt")
    with pytest.raises(UserError, match=r"agent.pt: actor_lr=<function .* cannot be saved"):
        save(make(env, actor_lr=lambda step: 0.1), tmp_path / "agent.pt")
    with pytest.raises(UserError, match="ForkAgent has no state_dict"):
        save(ForkAgent(1, 1, (-1, 1), torch.device("cpu")), tmp_path / "agent.pt")
    with pytest.raises(UserError, match=r"SACAgent was made with obs_groups=…, which a run gives and no file can"):
        save(make(env, obs_groups=(2, 1)), tmp_path / "agent.pt")
    with pytest.raises(UserError, match="cannot be written"):
        save(make(env, actor_lr=Linear(1e-3, 1e-4, 9)), tmp_path / "nowhere/agent.pt")
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".pt"] == []


PENDULUM = gym.make("Pendulum-v1")
WRONG: dict[str, Callable[[Any], Any]] = {
    "train: num_steps='9': a number goes here": lambda a: train(a, PENDULUM, "9"),  # type: ignore[arg-type]
    "train: num_steps=0: it should be greater than 0": lambda a: train(a, PENDULUM, 0),
    "train: env='Pendulum-v1': it should be an instance of Env": lambda a: train(a, "Pendulum-v1", 9),  # type: ignore[arg-type]
    "train: agent=3: it should be an instance of Agent": lambda a: train(3, PENDULUM, 9),  # type: ignore[arg-type]
    "train: sed=3: unknown key; did you mean seed": lambda a: train(a, PENDULUM, 9, sed=3),  # type: ignore[call-arg]
    "train: updates_per_step=0: it should be greater": lambda a: train(a, PENDULUM, 9, updates_per_step=0),
    "obs_dim=3, and the environment has obs_dim=2": lambda a: train(a, gym.make("MountainCarContinuous-v0"), 9),
    "env: its actions are discrete, and SACAgent is for continuous ones; choose agent=sac_discrete": lambda a: train(
        a, gym.make("CartPole-v1"), 9
    ),
    "one environment goes here, or several": lambda a: train(a, [PENDULUM, PENDULUM], 9),
    "logger=3: it needs log, log_all": lambda a: train(a, PENDULUM, 9, logger=3),
    "evaluator=3: it needs evaluate": lambda a: train(a, PENDULUM, 9, evaluator=3),
    "PrioritisedBuffer draws by priority, and ForkAgent": lambda a: train(
        ForkAgent(3, 1, (-1, 1), CPU), PENDULUM, 9, replay_buffer=PrioritisedBuffer((3,), (1,), 9, CPU)
    ),
    "execution=captured: CUDA graphs need a GPU": lambda a: train(a, PENDULUM, 9, execution="captured"),
    "evaluate: episodes=0: it should be greater": lambda a: evaluate(a, PENDULUM, 0),
    "agent=3: it needs act, train": lambda a: evaluate(3, PENDULUM),
    "shapes: env=3: it should be an instance of Env": lambda a: shapes(3),  # type: ignore[arg-type]
    "device=tpu: no such device": lambda a: shapes(PENDULUM, "tpu"),
}


@pytest.mark.parametrize("said", WRONG)
def test_a_mistake_is_one_line(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError) as caught:
        WRONG[said](make(PENDULUM))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_call_that_will_not_learn_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    train(make(PENDULUM), PENDULUM, 20)
    assert "No update is to be expected within 20 steps: num_seed_steps=5000." in capsys.readouterr().out


def test_an_environment_that_raises_is_one_line_and_its_own_traceback() -> None:
    env = gym.make("ProbeFaulty-v0")
    with pytest.raises(EnvError, match="env=ProbeFaulty-v0: its step raised ValueError: lost its way") as caught:
        train(make(env), env, 100, num_seed_steps=100)
    assert "probes.py" in caught.value.trace


def test_the_library_looks_for_no_opengl() -> None:
    """Importing dm_control would look for it, and a user's Gymnasium environment does not need dm_control."""
    import subprocess

    code = "import run.library, sys; sys.exit('dm_control' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=machine.__file__.rpartition("/run/")[0]).returncode == 0
