"""A user's own replay buffer, named in the YAML: trained with, checked, saved and continued."""

from pathlib import Path
from typing import Any

import probes
import pytest
import torch
from omegaconf import OmegaConf
from own_buffers import ListBuffer, PrioritisedBuffer, RecentBuffer
from runs import RUN, assert_same, go_on, run_until

from replay.device import DeviceReplayBuffer
from run.saving import resume
from utils import UserError

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


@pytest.mark.parametrize("own", OWN)
def test_what_was_not_saved_is_collected_anew(tmp_path: Path, own: str) -> None:
    run_until(tmp_path, 100, "env=ProbeTimeLimit-v0", *RUN, "save_replay_buffer=false", *OWN[own])
    continued = go_on(tmp_path)
    assert continued.step == 160 and continued.replay_buffer.num_added == 70
    assert continued.agent.num_updates == 50 + 30


def test_a_buffer_is_part_of_what_a_run_means(tmp_path: Path) -> None:
    probes.train(tmp_path, "env=ProbeTimeLimit-v0", *RUN, "num_train_steps=40", *RECENT)
    with pytest.raises(UserError, match=r"replay_buffer.share=0.25 would change the run"):
        resume.continuation(tmp_path, [*RECENT, "replay_buffer.share=0.25"])


@pytest.mark.parametrize(
    ("overrides", "leaf"),
    [
        (("replay_buffer._target_=own_buffers.NumpyState", *A_LIST[1:]), r"state\.replay_buffer\.first\.0"),
        (("replay_buffer._target_=own_buffers.NumpyScalar", *RECENT[1:]), r"state\.run\.replay_buffer\.largest"),
    ],
)
def test_a_state_that_could_not_be_loaded_is_found_before_it_is_needed(
    tmp_path: Path, overrides: tuple[str, ...], leaf: str
) -> None:
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", *RUN, *overrides)
    with pytest.raises(UserError, match=rf"^{leaf}: a state_dict holds tensors"):
        run.run()
    run.close()
    assert not (tmp_path / "train.csv").exists()


def test_a_storage_keeps_what_the_node_says(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=ProbeTimeLimit-v0", "replay_storage=device", "replay_buffer.capacity=7")
    assert type(run.replay_buffer) is DeviceReplayBuffer and run.replay_buffer.capacity == 7
    assert run.replay_buffer.device == torch.device("cpu")
    run.close()
