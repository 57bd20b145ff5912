"""A user's own replay buffer, named in the YAML: trained with, saved and continued."""

from pathlib import Path
from typing import Any

import composed
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from own_buffers import ListBuffer, PrioritisedBuffer
from runs import RUN, assert_goes_on, go_on, run_until

from replay_buffer import ReplayBuffer
from run.agents import EnvSpec
from run.buffers import choose_storage, make_replay_buffer
from settings.obs_spec import ObsSpec
from utils import UserError

SHAPES, CPU = EnvSpec(ObsSpec(vector_dim=1), (1,)), torch.device("cpu")
A_LIST = ("replay_buffer._target_=own_buffers.ListBuffer", "~replay_buffer.capacity", "~replay_buffer.with_replacement")
PRIORITISED = ("replay_buffer._target_=own_buffers.PrioritisedBuffer",)
OWN = {ListBuffer: A_LIST, PrioritisedBuffer: PRIORITISED}


@pytest.mark.parametrize(
    ("own", "overrides"),
    [
        (ListBuffer, ()),
        (PrioritisedBuffer, ("agent=crossq", "num_envs=2", "+replay_buffer.importance=1")),
    ],
)
def test_it_trains_and_goes_on_to_the_same_bytes(tmp_path: Path, own: Any, overrides: tuple[str, ...]) -> None:
    run = (*RUN, "env=Pendulum-v1", "replay_buffer_capacity=120", "execution=auto", "n_step=2", *OWN[own], *overrides)
    straight, continued = assert_goes_on(tmp_path, 101, *run, then=("device=cpu",))
    assert isinstance(straight.replay_buffer, own) and straight.agent.num_updates == 120
    if own is PrioritisedBuffer:
        assert len(straight.replay_buffer.state_dict()["p"].unique()) > 60  # set by the updates
    assert OmegaConf.load(tmp_path / "killed/config.yaml").replay_storage == "auto"
    assert all(map(torch.equal, continued.replay_buffer.sample(200), straight.replay_buffer.sample(200)))


@pytest.mark.parametrize("overrides", [(), A_LIST])
def test_what_was_not_saved_is_collected_anew(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    run_until(tmp_path, 100, "env=ProbeTimeLimit-v0", *RUN, "save_replay_buffer=false", *overrides)
    assert not (tmp_path / "checkpoints/buffer").exists()
    continued = go_on(tmp_path)
    assert continued.step == 160 and continued.replay_buffer.num_added == 70
    assert continued.agent.num_updates == 50 + 30  # the first 40 of the 70 only refilled the buffer


class NoSuperState(PrioritisedBuffer):
    def state_dict(self) -> dict[str, Any]:
        return {"p": torch.tensor(self._p)}


def test_a_state_that_could_not_be_resumed_is_found_when_the_buffer_is_made() -> None:
    cfg = composed.settings(f"replay_buffer._target_={__name__}.NoSuperState")
    with pytest.raises(KeyError, match="num_added"):
        make_replay_buffer(cfg, SHAPES, CPU, choose_storage(cfg, SHAPES, CPU))


def test_a_sample_that_no_cuda_graph_would_call_is_refused() -> None:
    class Samples(ReplayBuffer):
        def sample(self, batch_size: int) -> Any:
            return super().sample(batch_size)

    buffer = Samples((1,), (1,), 10, CPU)
    buffer.add(np.zeros(1), np.zeros(1), 0.0, np.zeros(1), False, False)
    buffer.sample(4)
    with pytest.raises(UserError, match=r"^Samples: CUDA graphs call stage, not sample; override choose instead$"):
        buffer.stage(4)
