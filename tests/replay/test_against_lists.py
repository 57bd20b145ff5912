"""Replay buffers, n-step rows and their files compared with plain lists, over random adds, saves and kills."""

import copy
import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from kills import Killed, killed_after
from same_run import same

from replay import device, frames
from replay.n_step import NStep
from replay_buffer import ReplayBuffer
from run.checkpoint import BUFFER, MANIFEST, Checkpoints, list_checkpoints, read_checkpoint
from settings.obs_spec import ObsSpec
from utils import UserError

GAMMA = 0.5  # with whole rewards, all sums are exact
GOES_ON, STANDS_STILL, TERMINATED, TRUNCATED, STARTS_OVER = range(5)  # STARTS_OVER: truncated, then the very first obs


class Row(NamedTuple):
    """A row as the buffer has to return it; an observation is a vector or a stack of frames."""

    obs: np.ndarray
    number: int  # of its step; also its action
    reward: float
    next_obs: np.ndarray
    discount: float


class ListReplay:
    """Environments, n-step rows and a replay buffer, written from their definitions.

    Nothing is overwritten: all rows and frames are kept, and their numbers tell which ones a ring would have lost.

    Args:
        num_envs, n_step: the run's settings.
        capacity: the buffer's maximum number of rows.
        stack: frames in an observation; 0 for vectors.
        frames: the buffer's maximum number of frames; a new frame is searched for among the newest half of them.
    """

    def __init__(self, num_envs: int, n_step: int, capacity: int, stack: int = 0, frames: int = 0):
        self.num_steps = 0  # of all environments together
        self.num_obs = 0  # vectors or frames made so far; each contains its number
        # For each environment, (obs, number, reward) of the steps whose rows are incomplete.
        self.pending: list[list[tuple[np.ndarray, int, float]]] = [[] for _ in range(num_envs)]
        self.rows: list[Row] = []  # all, oldest first
        self._n_step, self._capacity, self._stack, self._max_frames = n_step, capacity, stack, frames
        self._frames: list[bytes] = []  # all that were ever stored
        self._frames_of: list[set[int]] = []  # for each row, its frames' indices in _frames
        self._start = self._first()
        self._obs = [self._start] * num_envs

    def step(self, outcomes: list[int]) -> tuple[np.ndarray, ...]:
        """Steps every environment; returns the step as the arguments of `NStep.rows`."""
        obs, numbers = self._obs, [self.num_steps + i for i in range(len(outcomes))]
        rewards = [float(number % 1000) for number in numbers]
        next_obs = [o if what == STANDS_STILL else self._next(o) for o, what in zip(obs, outcomes, strict=True)]
        terminated = [what == TERMINATED for what in outcomes]
        done = [what in (TERMINATED, TRUNCATED, STARTS_OVER) for what in outcomes]
        for pending, *step in zip(self.pending, obs, numbers, rewards, next_obs, done, terminated, strict=True):
            self._complete(pending, *step)
        self.num_steps += len(outcomes)
        self._obs = [
            self._start if what == STARTS_OVER else self._first() if ended else o
            for o, what, ended in zip(next_obs, outcomes, done, strict=True)
        ]
        actions = np.array(numbers, np.float32)[:, None]
        return np.stack(obs), actions, np.array(rewards), np.stack(next_obs), np.array(done), np.array(terminated)

    def stored(self) -> list[Row]:
        """Returns the rows that can be drawn, oldest first."""
        lost = len(self._frames) - self._max_frames  # frames below this index are overwritten
        incomplete = [i for i, frames in enumerate(self._frames_of) if any(frame < lost for frame in frames)]
        return self.rows[max([len(self.rows) - self._capacity, 0, *(i + 1 for i in incomplete)]) :]

    def _complete(self, pending: list[Any], obs: Any, number: int, reward: float, next_obs: Any, *ends: bool) -> None:
        """Adds the rows that one environment's step completes."""
        done, terminated = ends
        pending.append((obs, number, reward))
        while pending and (done or len(pending) == self._n_step):
            first_obs, first_number, _ = pending[0]
            total = sum(GAMMA**k * later for k, (_, _, later) in enumerate(pending))
            discount = 0.0 if terminated else GAMMA ** (len(pending) - 1)
            self.rows.append(Row(first_obs, first_number, total, next_obs, discount))
            self._frames_of.append({self._place(frame) for o in (first_obs, next_obs) for frame in o[: self._stack]})
            del pending[0]

    def _place(self, frame: np.ndarray) -> int:
        """Returns a frame's index in _frames; stores the frame first unless it is among the newest."""
        first = max(0, len(self._frames) - self._max_frames // 2)
        newest = self._frames[first:]
        if frame.tobytes() not in newest:
            self._frames.append(frame.tobytes())
            return len(self._frames) - 1
        return first + max(i for i, stored in enumerate(newest) if stored == frame.tobytes())

    def _new(self) -> np.ndarray:
        """Returns a new vector, or a new frame of 2x2 pixels."""
        self.num_obs += 1
        if not self._stack:
            return np.array([self.num_obs, -self.num_obs], np.float32)
        return np.frombuffer(self.num_obs.to_bytes(4, "little"), np.uint8).reshape(1, 2, 2)

    def _first(self) -> np.ndarray:
        return np.concatenate([self._new() for _ in range(self._stack)]) if self._stack else self._new()

    def _next(self, obs: np.ndarray) -> np.ndarray:
        return np.concatenate([obs[1:], self._new()]) if self._stack else self._new()


CPU = torch.device("cpu")
MOST_OPERATIONS = 25  # on the disk, before a kill while a checkpoint is saved
OUTCOME = st.sampled_from([*[GOES_ON] * 5, STANDS_STILL, TERMINATED, TRUNCATED, STARTS_OVER])
OUTCOMES = st.sampled_from([1, 3, 6, 12]).flatmap(lambda size: st.lists(OUTCOME, min_size=size, max_size=size))
STORAGES = st.sampled_from(list(device.STORAGES))


class Runs(RuleBasedStateMachine):
    """The processes of one run: each continues from a checkpoint, adds and draws rows, and is killed."""

    def __init__(self, has_images: bool) -> None:
        super().__init__()
        self.has_images = has_images
        self.folder = Path(tempfile.mkdtemp())
        self.lists_at: dict[int, ListReplay] = {}  # by a checkpoint's step
        self.damaged: set[Path] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        num_envs=st.integers(1, 3),
        n_step=st.integers(1, 4),
        capacity=st.sampled_from([2, 5, 6, 7, 12, 30]),
        more=st.sampled_from([0, 90]),  # for images: a larger buffer of them loses frames before rows
        stack=st.integers(1, 3),
        storage=STORAGES,
        keep=st.integers(1, 3),
    )
    def begin(self, num_envs: int, n_step: int, capacity: int, more: int, stack: int, storage: str, keep: int) -> None:
        self.num_envs, self.n, self.keep = num_envs, n_step, keep
        self.capacity, self.stack = (capacity + more, stack) if self.has_images else (capacity, 0)
        self.begin_anew(storage)

    def begin_anew(self, storage: str) -> None:
        self.storage = storage
        self.buffer = self.new_buffer(storage)
        self.n_step = NStep(self.n, GAMMA)
        num_frames = self.buffer.rings["frames"].capacity if self.stack else 0
        self.lists = ListReplay(self.num_envs, self.n, self.capacity, self.stack, num_frames)
        self.writer, self.saved_step = Checkpoints(self.folder, self.keep, {"agent": "sac"}), None

    def new_buffer(self, storage: str) -> ReplayBuffer:
        if self.stack:
            kind: Any = frames.STORAGES[storage]
            spec = ObsSpec((self.stack, 2, 2), frame_stack=self.stack)
            return kind(spec.shape, (1,), self.capacity, CPU, obs_spec=spec)
        return device.STORAGES[storage]((2,), (1,), self.capacity, CPU)

    @rule(outcomes=OUTCOMES, times=st.sampled_from([1, 1, 9]))
    def add(self, outcomes: list[int], times: int) -> None:
        outcomes = outcomes * times
        for start in range(0, len(outcomes) - self.num_envs + 1, self.num_envs):
            step = self.lists.step(outcomes[start : start + self.num_envs])
            self.buffer.add_batch(*self.n_step.rows(*step))
            for array in step:
                array.fill(0)  # an environment may use it again
        assert self.n_step.num_pending == sum(map(len, self.lists.pending))
        assert self.buffer.num_added == len(self.lists.rows)

    @precondition(lambda self: self.lists.rows)
    @rule(in_halves=st.booleans())
    def sample(self, in_halves: bool) -> None:
        """Asserts that every row of the lists is drawn, as it was added, and no other row is."""
        stored = {row.number: row for row in self.lists.stored()}
        assert len(self.buffer) == len(stored)
        batch_size = 30 * len(stored)
        if in_halves:
            self.buffer.stage(batch_size)
            batch = self.buffer.staged()
        else:
            batch = self.buffer.sample(batch_size)
        drawn = [int(number) for number in batch.action[:, 0]]
        assert set(drawn) == set(stored)
        rows = [stored[number] for number in drawn]
        np.testing.assert_array_equal(batch.obs, np.stack([row.obs for row in rows]))
        np.testing.assert_array_equal(batch.next_obs, np.stack([row.next_obs for row in rows]))
        assert batch.reward[:, 0].tolist() == [row.reward for row in rows]
        assert batch.discount[:, 0].tolist() == [row.discount for row in rows]

    @rule(outcomes=OUTCOMES)
    def save(self, outcomes: list[int]) -> None:
        self.add(outcomes, 1)
        if self.write_checkpoint():
            self.damaged = {path for path in self.damaged if path.exists() and path != self.writer.newest}
            self.assert_tidy()

    @rule(
        outcomes=OUTCOMES,
        operations=st.integers(0, MOST_OPERATIONS),
        share=st.sampled_from([0.0, 0.5, 1.0]),
        to=STORAGES,
        catches_up=st.booleans(),
    )
    def die_while_saving(self, outcomes: list[int], operations: int, share: float, to: str, catches_up: bool) -> None:
        """The next process may reach the same step by other transitions and save files of the same names."""
        self.add(outcomes, 1)
        step, before = self.lists.num_steps, self.saved_step
        with suppress(Killed), killed_after(operations, self.folder, share):
            self.write_checkpoint()
        self.restore(to, {step, before})
        if catches_up and self.lists.num_steps < step:
            self.save([GOES_ON] * (step - self.lists.num_steps))

    def write_checkpoint(self) -> bool:
        """Saves a checkpoint if there are new steps; returns whether it did."""
        step = self.lists.num_steps
        if step == self.saved_step:
            return False
        run = {"replay_buffer": self.buffer.state_dict(), "n_step": self.n_step.state_dict(), "storage": self.storage}
        self.lists_at[step] = copy.deepcopy(self.lists)
        self.writer.save(step, {"agent": {"step": step}, "run": run}, self.buffer)
        self.saved_step = step
        return True

    @precondition(lambda self: self.lists.num_steps not in (0, self.saved_step))
    @rule(to=STORAGES)
    def kill(self, to: str) -> None:
        self.restore(to, {self.saved_step})

    @precondition(lambda self: not self.damaged and len(list_checkpoints(self.folder)) > 1)
    @rule(to=STORAGES)
    def damage(self, to: str) -> None:
        """Damages the newest checkpoint; the run continues from the one before it."""
        newest, older, *_ = list_checkpoints(self.folder)
        (newest / MANIFEST).write_text("{}")
        self.damaged = {newest}
        self.restore(to, {read_checkpoint(older).manifest["step"]})

    def restore(self, storage: str, expected_steps: set[int | None]) -> None:
        writer = Checkpoints(self.folder, self.keep, {"agent": "sac"})
        try:
            saved = writer.load_newest("agent", "run")
        except UserError:
            assert None in expected_steps and not list_checkpoints(self.folder)
            self.begin_anew(storage)
            return
        assert saved.manifest["step"] in expected_steps and saved.states["agent"] == {"step": saved.manifest["step"]}
        self.damaged.discard(saved.path)  # a process may have written it again before it was killed
        for path in set(list_checkpoints(self.folder)) - self.damaged:  # a kill leaves no half file under a final name
            read_checkpoint(path, "agent", "run", with_rows=True)
        state, killed = saved.states["run"], self.lists
        self.begin_anew(storage)
        saved.read_rows(BUFFER, self.buffer)
        self.buffer.load_state_dict(state["replay_buffer"])
        self.n_step.load_state_dict(state["n_step"])
        if storage == state["storage"]:
            assert same(self.buffer.state_dict(), state["replay_buffer"])
        self.writer, self.saved_step = writer, saved.manifest["step"]
        self.lists = copy.deepcopy(self.lists_at[saved.manifest["step"]])
        self.lists.num_obs = killed.num_obs  # the next obs differ from those before the kill
        assert len(self.buffer) == len(self.lists.stored())
        if self.lists.rows:
            self.sample(in_halves=False)

    def assert_tidy(self) -> None:
        """Asserts that the folder has the files of the checkpoints that are kept, and no others."""
        kept = list_checkpoints(self.folder)
        assert len(kept) <= self.keep
        checkpoints = [read_checkpoint(path, "agent", "run", with_rows=True).manifest[BUFFER] for path in kept]
        names = {segment["name"] for segments in checkpoints for segment in segments}
        assert {path.name for path in (self.folder / "checkpoints/buffer").glob("*")} == names
        assert {path for path in (self.folder / "checkpoints").iterdir() if path.name != "buffer"} == set(kept)
        oldest = len(self.lists.rows) - len(self.lists.stored())
        assert all(segment["stop"] > oldest for segment in checkpoints[0] if segment["ring"] == "rows")


@pytest.mark.parametrize("num_examples", [8, pytest.param(40, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("has_images", [False, True])
def test_a_run_holds_what_lists_hold(has_images: bool, num_examples: int) -> None:
    examples = settings(max_examples=num_examples, stateful_step_count=40)
    run_state_machine_as_test(partial(Runs, has_images), settings=examples)
