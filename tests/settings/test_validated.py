"""Constructors check their arguments against the types of the configuration, for users of the library."""

import copy
import inspect
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch
from forks import ForkAgent

from agent.actor import DiagGaussianActor, GaussianMixtureActor
from agent.critic import CriticEnsemble, DoubleQCritic, ValueNetwork
from agent.crossq import CrossQAgent
from agent.exploration import HeldNoise
from agent.networks import BatchNorm, CategoricalHead, Dropout, LayerNorm, NormedMLP, QuantileHead, RMSNorm
from agent.networks.residual import Shape
from agent.normalise import ObservationNormaliser, RewardNormaliser
from agent.sac import SACAgent
from agent.schedule import Cosine, Exponential, Linear, Piecewise
from agent.td3 import DeterministicActor, TD3Agent
from agent.temperature import ExponentialTemperature, FixedTemperature, LearnedTemperature
from logger import Logger
from replay.n_step import NStep
from replay_buffer import ReplayBuffer
from run.evaluation.evaluator import Evaluator
from settings.types import PositiveInt, UnitInterval
from settings.validated import Validated
from utils import UserError

if TYPE_CHECKING:
    from decimal import Decimal

CPU = torch.device("cpu")
SIZE = {"hidden_dim": 8, "hidden_depth": 1}
SPACES = {"obs_dim": 3, "action_dim": 1, "action_range": (-1, 1), "device": CPU}
NETWORKS = {
    "critic": partial(CriticEnsemble, **SIZE),
    "actor": partial(DiagGaussianActor, log_std_bounds=(-5, 2), **SIZE),
    "temperature": LearnedTemperature,
}


def sac(**values: Any) -> SACAgent:
    return SACAgent(**(SPACES | NETWORKS | values))


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a text for a number": (lambda: sac(batch_size="64"), "SACAgent: batch_size='64': a number goes here"),
    "a number out of range": (lambda: sac(discount=7), "SACAgent: discount=7: it should be less than or equal to 1"),
    "its own parameter": (lambda: sac(critic_tau=-1), "SACAgent: critic_tau=-1: it should be greater than or equal"),
    "no number": (lambda: sac(actor_lr=float("nan")), "SACAgent: actor_lr=nan: it should be a finite number"),
    "a switch for a number": (lambda: sac(batch_size=True), "SACAgent: batch_size=True: a number goes here"),
    "a word for a switch": (
        lambda: sac(learnable_temperature="no"),
        "SACAgent: learnable_temperature='no': true or false goes here",
    ),
    "a word of others": (lambda: sac(actor_q="max"), "SACAgent: actor_q='max': it should be 'min', 'mean' or 'first'"),
    "within a pair": (lambda: sac(actor_betas=(0.9, 1)), r"SACAgent: actor_betas=\(0.9, 1\): it should be less than 1"),
    "texts within a pair": (lambda: sac(actor_betas=("0.9", 0.9)), "actor_betas=.*: a number goes here"),
    "no factory": (lambda: sac(critic=5), "SACAgent: critic=5: it should be callable"),
    "a device's name": (lambda: sac(device="cpu"), "SACAgent: device='cpu': it should be an instance of device"),
    "an unknown keyword": (
        lambda: sac(bacth_size=64),
        r"SACAgent: bacth_size=64: unknown key; did you mean batch_size\?",
    ),
    "like no other": (lambda: sac(xyz=1), r"SACAgent: xyz=1: unknown key; help\(SACAgent\) lists them"),
    "a schedule's value": (
        lambda: sac(discount=Linear(0.9, 7.0, 100)),
        "SACAgent: discount, at step 100, =7.0: it should be less than or equal to 1",
    ),
    "a schedule that fails": (
        lambda: sac(discount=lambda step: 1 / step),
        r"SACAgent: discount=.*: no schedule can be made of it \(ZeroDivisionError",
    ),
    "another agent": (lambda: CrossQAgent(**SPACES, **NETWORKS, actor_batch="all"), "CrossQAgent: actor_batch='all'"),
    "an agent's base": (lambda: TD3Agent(**SPACES, critic=int, actor=int, reward_scale="x"), "TD3Agent: reward_scale"),
    "critics": (lambda: DoubleQCritic(3, 1, hidden_dim=-1, hidden_depth=2), "CriticEnsemble: hidden_dim=-1: it should"),
    "critics by position": (lambda: CriticEnsemble(3, 1, 8, 2000), "CriticEnsemble: hidden_depth=2000: it should be"),
    "a value network": (lambda: ValueNetwork(3, 8, 2, init="ones"), "ValueNetwork: init='ones'"),
    "an actor": (lambda: DiagGaussianActor(3, 1, 8, 1, (2, -5)), "log_std_bounds=.*: the lower bound comes first"),
    "a mixture": (lambda: GaussianMixtureActor(3, 1, 8, 1, 0, (-5, 2)), "GaussianMixtureActor: num_components=0"),
    "TD3's": (lambda: DeterministicActor(3, 1, 8, 1, exploration_std=-1), "DeterministicActor: exploration_std=-1"),
    "a network's norm": (lambda: NormedMLP(Shape(3, 8, 1, 1), norm=1), "NormedMLP: norm=1: it should be callable"),
    "a norm": (lambda: LayerNorm(8, eps=0), "LayerNorm: eps=0: it should be greater than 0"),
    "another norm": (lambda: RMSNorm(0), "RMSNorm: width=0"),
    "batch statistics": (lambda: BatchNorm(8, momentum=2), "BatchNorm: momentum=2"),
    "dropout": (lambda: Dropout(1), "Dropout: probability=1: it should be less than 1"),
    "quantiles": (lambda: QuantileHead(num_quantiles=2.5), "QuantileHead: num_quantiles=2.5: an integer goes here"),
    "bins": (lambda: CategoricalHead(bounds=(1, 1)), "CategoricalHead: bounds="),
    "temperatures": (lambda: LearnedTemperature(-1), "LearnedTemperature: init_temperature=-1"),
    "a form": (lambda: LearnedTemperature(1, form="x"), "LearnedTemperature: form='x'"),
    "a fixed one": (lambda: FixedTemperature("1"), "FixedTemperature: init_temperature='1': a number goes here"),
    "a falling one": (lambda: ExponentialTemperature(1, 0, 0), "ExponentialTemperature: decay=0: it should be greater"),
    "a line": (lambda: Linear(1, 0, steps=0), "Linear: steps=0"),
    "a cosine": (lambda: Cosine("a", 0, 5), "Cosine: start='a'"),
    "an exponential": (lambda: Exponential(1, 0, decay=-1), "Exponential: decay=-1"),
    "no points": (lambda: Piecewise([]), r"Piecewise: points=\[\]"),
    "observations": (lambda: ObservationNormaliser(0), "ObservationNormaliser: obs_dim=0"),
    "rewards": (lambda: RewardNormaliser(CPU, bound=0), "RewardNormaliser: bound=0"),
    "exploration": (lambda: HeldNoise(CPU, max_steps=0), "HeldNoise: max_steps=0"),
    "a logger": (lambda: Logger(Path(), {}, log_frequency=-1), "Logger: log_frequency=-1"),
    "sinks": (lambda: Logger(Path(), {"console": 5}), "Logger: sinks={'console': 5}: it should be callable"),
    "an evaluator": (lambda: Evaluator(print, 0, 0, None), "Evaluator: num_episodes=0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_line_that_names_it(case: str) -> None:
    make, said = WRONG[case]
    with pytest.raises(UserError, match=f"^(?=.*{said})") as caught:
        make()
    assert "\n" not in str(caught.value)


def test_what_fits_arrives_as_the_hint_has_it() -> None:
    agent = sac(batch_size=64.0, discount=1, target_entropy="auto", critic_lr=Linear(1e-3, 0, 10))
    assert (agent.batch_size, type(agent.batch_size)) == (64, int)
    assert agent.schedules.discount == 1 and agent.schedules.target_entropy == -1
    assert Logger(Path(), {"none": None}).sinks == {}


# Classes as a user might write them.


class MyAgent(SACAgent):
    """Has parameters of its own, and passes all others on."""

    def __init__(self, depth: PositiveInt, rate: UnitInterval = 0.5, label: Any = None, **rest: Any):
        super().__init__(critic_tau=rate, **rest)
        self.depth = depth


class Quiet(MyAgent):
    """Has no constructor of its own."""


class Closed(SACAgent):
    def __init__(self, device, spaces, size="small"):
        super().__init__(device=device, **spaces, **NETWORKS, batch_size={"small": 16}[size])


class OutOfReach(Validated):
    """Has hints that cannot be evaluated at run time."""

    def __init__(self, number: "Decimal", size: PositiveInt = 3):
        self.size = size


class Lenient(Validated):
    def __init__(self, device: str, kind: Literal["a"] = None, *sizes: PositiveInt):  # type: ignore[assignment]  # noqa: RUF013
        self.device, self.kind, self.sizes = device, kind, sizes


def test_an_agent_of_ones_own_is_checked_with_nothing_said_for_it() -> None:
    for kind in (MyAgent, Quiet):
        name = kind.__name__
        given: dict[str, Any] = SPACES | NETWORKS
        assert kind(2.0, **given).depth == 2
        with pytest.raises(UserError, match=f"^{name}: depth='2': a number"):
            kind("2", **given)
        with pytest.raises(UserError, match=f"^{name}: rate=2: it should be less"):
            kind(1, rate=2, **given)
        with pytest.raises(UserError, match=f"^{name}: batch_size=0: it should be greater"):
            kind(1, batch_size=0, **given)
        with pytest.raises(UserError, match=rf"^{name}: dept=1: unknown key; did you mean depth\?"):
            kind(1, dept=1, **given)


def test_what_has_no_hints_or_none_that_can_be_followed_may_be_anything() -> None:
    spaces = {key: value for key, value in SPACES.items() if key != "device"}
    assert Closed(CPU, spaces).batch_size == 16
    with pytest.raises(UserError, match=r"^Closed: sise='small': unknown key; did you mean size\?"):
        Closed(CPU, spaces, sise="small")
    assert ForkAgent(3, 1, (-1, 1), CPU, lr=1e-3).device is CPU
    assert OutOfReach(None, size=-1).size == -1  # type: ignore[arg-type]
    assert Lenient(CPU, None, 1, 2).sizes == (1, 2)  # type: ignore[arg-type]


def test_pythons_own_words_stay_for_what_is_missing_or_given_twice() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'capacity'"):
        ReplayBuffer((3,), (1,), device=CPU)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="multiple values for argument 'n_step'"):
        NStep(3, n_step=3)  # type: ignore[misc]
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 4"):
        NStep(3, 1.0, 5)  # type: ignore[call-arg]


def test_signatures_copies_and_pickles_are_those_of_any_class() -> None:
    assert list(inspect.signature(MyAgent).parameters) == ["depth", "rate", "label", "rest"]
    assert inspect.signature(ReplayBuffer).parameters["capacity"].annotation is PositiveInt
    schedule = pickle.loads(pickle.dumps(Linear(1, 0, 10)))
    assert schedule(5) == 0.5
    critic = DoubleQCritic(3, 1, **SIZE)
    critic.trunk.hidden_dim = "no longer of interest"
    again = copy.deepcopy(critic), pickle.loads(pickle.dumps(critic))
    for one in again:
        torch.testing.assert_close(one(torch.ones(2, 3), torch.ones(2, 1)), critic(torch.ones(2, 3), torch.ones(2, 1)))


def test_only_constructors_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    import settings.validated as checked

    critic, noise = DoubleQCritic(3, 1, **SIZE), HeldNoise(CPU)
    monkeypatch.setattr(checked, "_fit", None)
    critic(torch.ones(2, 3), torch.ones(2, 1))
    noise(lambda rows: torch.zeros(rows, 1), 2)
    copy.deepcopy(critic)
    with pytest.raises(TypeError):
        HeldNoise(CPU)
