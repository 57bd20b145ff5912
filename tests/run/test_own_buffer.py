"""A user's own replay buffer, named in the YAML: trained with, checked, saved and continued."""

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import own_buffers
import probes
import pytest
import torch
from agents import make_agent
from omegaconf import OmegaConf
from own_buffers import ListBuffer, PrioritisedBuffer, RecentBuffer
from runs import RUN, assert_same, go_on, run_until

import train
from replay.device import DeviceReplayBuffer
from replay_buffer import ReplayBuffer
from run.data.buffers import build_replay_buffer, choose_storage
from run.env_spec import EnvSpec
from run.saving import resume
from settings import compose
from settings.obs_spec import ObsSpec
from settings.schema import check
from utils import UserError

SHAPES, CPU = EnvSpec(ObsSpec(vector_dim=1), (1,)), torch.device("cpu")
RECENT = ("replay_buffer._target_=own_buffers.RecentBuffer", "+replay_buffer.share=0.5", "+replay_buffer.window=9")
A_LIST = (
    *("replay_buffer._target_=own_buffers.ListBuffer", "~replay_buffer.capacity", "~replay_buffer.with_replacement"),
)
PRIORITISED = ("replay_buffer._target_=own_buffers.PrioritisedBuffer",)
OWN = {"subclass": RECENT, "another": A_LIST, "prioritised": PRIORITISED}
KINDS = {"subclass": RecentBuffer, "another": ListBuffer, "prioritised": PrioritisedBuffer}


def draws(buffer: Any) -> list[torch.Tensor]:
    return list(buffer.sample(200))


@pytest.mark.parametrize(
    ("own", "overrides"),
    [
        pytest.param("subclass", (), marks=pytest.mark.thorough),
        ("another", ()),
        ("prioritised", ()),
        ("prioritised", ("agent=crossq", "num_envs=2")),
        ("prioritised", ("agent=tqc", "n_step=1", "+replay_buffer.importance=1")),
    ],
)
def test_it_trains_and_goes_on_to_the_same_bytes(tmp_path: Path, own: str, overrides: tuple[str, ...]) -> None:
    run = (*RUN, "env=Pendulum-v1", "replay_buffer_capacity=120", "execution=auto", "n_step=2", *OWN[own], *overrides)
    straight = probes.train(tmp_path / "straight", *run)
    assert isinstance(straight.replay_buffer, KINDS[own])
    assert straight.agent.num_updates == 120
    if own == "prioritised":
        assert len(straight.replay_buffer.state_dict()["p"].unique()) > 60  # set by the updates
    run_until(tmp_path / "killed", 101, *run)
    assert OmegaConf.load(tmp_path / "killed/config.yaml").replay_storage == "auto"
    continued = go_on(tmp_path / "killed", "device=cpu")
    assert continued.step == 160
    assert_same(tmp_path / "killed", tmp_path / "straight")
    assert all(map(torch.equal, draws(continued.replay_buffer), draws(straight.replay_buffer)))


def test_preloaded_rows_in_a_buffer_of_their_own_are_no_part_of_it() -> None:
    for own, message in (
        (PRIORITISED, r"^preload_share=0\.5: .*\.PrioritisedBuffer draws by priority"),
        (
            ("replay_buffer=lap",),
            r"^preload_share=0\.5: replay\.sampling\.Prioritised draws .* or replay_buffer=uniform$",
        ),
        (RECENT, None),
    ):
        cfg = check(compose.plain(compose.compose_config("train", ["preload_share=0.5", *own])))
        with nullcontext() if message is None else pytest.raises(UserError, match=message):
            build_replay_buffer(cfg, SHAPES, CPU, choose_storage(cfg, SHAPES, CPU), "recorded", make_agent())


@pytest.mark.parametrize("own", OWN)
def test_what_was_not_saved_is_collected_anew(tmp_path: Path, own: str) -> None:
    run_until(tmp_path, 100, "env=ProbeTimeLimit-v0", *RUN, "save_replay_buffer=false", *OWN[own])
    continued = go_on(tmp_path)
    assert continued.step == 160 and continued.replay_buffer.num_added == 70
    assert continued.agent.num_updates == 50 + 30


def test_a_buffer_is_part_of_what_a_run_means(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40", *RECENT)
    for override in ("replay_buffer.share=0.25", "replay_buffer.capacity=20"):
        with pytest.raises(UserError, match=rf"{override} would change the run"):
            resume.continuation(tmp_path, [*RECENT, override])
    with pytest.raises(UserError, match=r"replay_storage=pinned: .*own_buffers\.RecentBuffer; choose replay_st"):
        go_on(tmp_path, "replay_storage=pinned", "num_train_steps=60")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*RECENT, "+replay_buffer.shar=1"), "did you mean replay_buffer.share"),
        ((*RECENT, "replay_buffer.share=2"), "replay_buffer.share=2: it should be less than or equal to 1"),
        ((*RECENT, "replay_buffer.capacity=0"), "replay_buffer.capacity=0: it should be greater than 0"),
        (RECENT[:1], "replay_buffer.share is missing"),
        ((*RECENT, "replay_storage=device"), "choose replay_storage=auto"),
        (
            (*RECENT, "sample_with_replacement=false"),
            "sample_with_replacement=false: only rows that are drawn uniformly",
        ),
        ((*A_LIST, "~replay_buffer.seed"), "replay_buffer.seed is missing"),
        (("+replay_buffer.obs_shape=[3]",), "it comes from the environment"),
        (("replay_buffer._target_=own_buffers.Nowhere",), "cannot be imported"),
        (("replay_buffer._partial_=false",), "_partial_: true"),
        (("replay_buffer=5",), "replay_buffer"),
        (("replay_buffer.capacity=10_000_000_000_000",), "bytes are needed"),
        (("replay_buffer._target_=own_buffers.NoSample", *A_LIST[1:]), "own_buffers.NoSample: it needs sample"),
        (("replay_buffer._target_=own_buffers.NoShapes", *A_LIST[1:]), "it has to take obs_shape, action_shape and"),
        ((*PRIORITISED, "replay_buffer=lap"), "PrioritisedBuffer itself draws by priority; leave it out"),
        ((*PRIORITISED, "agent=sac_v"), "PrioritisedBuffer draws by priority, and SACVAgent returns no"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "env=Pendulum-v1", *arguments])
    assert train.main() == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("replay_buffer._target_=own_buffers.NumpyState", *A_LIST[1:]),
            r"own_buffers\.NumpyState: state\.first\.0 of",
        ),
        (
            ("replay_buffer._target_=own_buffers.NumpyScalar", *RECENT[1:]),
            r"own_buffers\.NumpyScalar: state\.largest of",
        ),
    ],
)
def test_a_state_that_could_not_be_read_back_is_found_before_it_is_needed(
    tmp_path: Path, overrides: tuple[str, ...], message: str
) -> None:
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN, *overrides)
    with pytest.raises(UserError, match=message):
        run.run()
    run.close()
    assert not (tmp_path / "train.csv").exists()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (np.arange(4), r"^Chooses\.choose returns a ndarray; return places, weights or places, None$"),
        (([0, 1, 2, 3], None), r"^Chooses\.choose: places are list \(4,\); a NumPy array \(4,\) is needed$"),
        ((np.zeros((4, 1), int), None), r"places are ndarray \(4, 1\)"),
        ((np.arange(4), np.ones((4, 1))), r"weights are ndarray \(4, 1\)"),
        ((np.arange(4), torch.ones(4)), r"weights are Tensor \(4,\)"),
        ((np.arange(4.0), None), r"places of type float64; integers are needed"),
        ((np.array([0, 5, 2, 9]), None), r"^Chooses\.choose returns places 0 to 9; 5 rows are stored$"),
        ((np.array([0, -1, 2, 4]), None), r"places -1 to 4"),
        ((np.arange(4), np.array([1, 1, -1, 1])), r"weights are -1 to 1; finite positive ones are needed$"),
        ((np.arange(4), np.array([1, 1, np.nan, 1])), r"weights are nan to nan"),
        ((np.arange(4), np.array([1, 1, np.inf, 1])), r"weights are 1 to inf"),
        ((np.arange(4), np.zeros(4)), r"weights are 0 to 0"),
    ],
)
@pytest.mark.parametrize("draw", ["sample", "stage"])
def test_what_choose_returns_is_checked(draw: str, chosen: Any, message: str) -> None:
    class Chooses(ReplayBuffer):
        def choose(self, batch_size: int) -> Any:
            return chosen

    buffer = Chooses((1,), (1,), 10, CPU)
    for _ in range(5):
        buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), False, False)
    with pytest.raises(UserError, match=message):
        getattr(buffer, draw)(4)


def test_a_buffer_with_priorities_always_weighs() -> None:
    class Unweighted(PrioritisedBuffer):
        def choose(self, batch_size: int) -> Any:
            return super().choose(batch_size)[0], None

    buffer = Unweighted((1,), (1,), 10, CPU)
    buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), False, False)
    with pytest.raises(UserError, match=r"^Unweighted\.choose returns no weights, .*has to; return np"):
        buffer.sample(4)


class NoSuperState(PrioritisedBuffer):
    def state_dict(self) -> dict[str, Any]:
        return {"p": torch.tensor(self._p)}


class NoState(ReplayBuffer):
    def state_dict(self) -> Any:
        return None


class NoSuperLoad(ReplayBuffer):
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class OtherKeys(PrioritisedBuffer):
    def state_dict(self) -> dict[str, Any]:
        return ReplayBuffer.state_dict(self) | {"q": 1.0}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoSuperState, r"its state_dict lacks capacity, num_added, rng, row_width; add yours to super\(\)\.state_dict"),
        (NoState, r"its state_dict returns a NoneType; return a dictionary$"),
        (NoSuperLoad, r"its load_state_dict has to call super\(\)\.load_state_dict\(state\)$"),
        (OtherKeys, r"it cannot load its own state_dict \(KeyError in .*own_buffers\.py:\d+: 'p'\)$"),
    ],
)
def test_a_state_that_could_not_be_resumed_is_found_when_the_buffer_is_built(kind: type, message: str) -> None:
    cfg = check(compose.plain(compose.compose_config("train", [f"replay_buffer._target_={__name__}.{kind.__name__}"])))
    with pytest.raises(UserError, match=rf"^replay_buffer\._target_={__name__}\.{kind.__name__}: {message}"):
        build_replay_buffer(cfg, SHAPES, CPU, "auto", "recorded", make_agent())


def test_updates_in_a_cuda_graph_ask_more_of_a_buffer() -> None:
    cfg = check(compose.plain(compose.compose_config("train", [*A_LIST])))
    with pytest.raises(UserError, match="ListBuffer: it needs stage, staged, generators; or choose execution=eager"):
        build_replay_buffer(cfg, SHAPES, CPU, "auto", "captured", None)
    assert isinstance(build_replay_buffer(cfg, SHAPES, CPU, "auto", "recorded", None), ListBuffer)


class Samples(RecentBuffer):
    def sample(self, batch_size: int) -> Any:
        return super().sample(batch_size)


class Stages(Samples):
    def stage(self, batch_size: int) -> None: ...


@pytest.mark.parametrize(("kind", "fits"), [(Samples, False), (Stages, True), (RecentBuffer, True)])
def test_a_sample_that_no_cuda_graph_would_call_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: type, fits: bool
) -> None:
    monkeypatch.setattr(own_buffers, "RecentBuffer", kind)
    cfg = check(compose.plain(compose.compose_config("train", [*RECENT])))
    build = partial(build_replay_buffer, cfg, SHAPES, CPU, "auto", agent=None)
    assert isinstance(build("recorded"), kind)
    if fits:
        assert isinstance(build("captured"), kind)
    else:
        with pytest.raises(UserError, match=r"RecentBuffer: it overrides sample, .*; override choose, or choose exec"):
            build("captured")


def test_a_storage_keeps_what_the_node_says(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", "replay_storage=device", "replay_buffer.capacity=7")
    assert type(run.replay_buffer) is DeviceReplayBuffer and run.replay_buffer.capacity == 7
    assert run.replay_buffer.device == torch.device("cpu")
    run.close()
