"""What a run saves and continues from: its parts, each with a state of its own, in checkpoints."""

import contextlib
import random
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from replay_buffer import ReplayBuffer
from run.build import Outputs, Parts
from run.evaluation.evaluations import Evaluations
from run.progress import Progress
from run.saving import checkpoint, damaged
from run.saving import folder as run_folder
from run.saving.checkpoint import BrokenError, Checkpoint, Checkpoints, NoneWholeError
from settings.schema import Settings
from utils import RunError, UserError, non_finite, not_plain, one_line, require_count, require_finite_losses


class Stateful(Protocol):
    """Something that continues where its state was taken. A state is tensors and plain values, nested."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class SavedRun:
    """A run's parts and its checkpoints.

    The agent, which is needed alone to evaluate it, has a file of its own in a checkpoint. A ReplayBuffer's rows are
    saved in segments, any other buffer in one file. Everything else is in one more.

    Args:
        cfg: the run's settings.
        work_dir: its folder.
        parts: what it is made of; all must have a state.
        outputs: its logger, and perhaps an evaluator of the user's own, with a state or without.
        progress: how far it is.
        evaluations: one of them may be under way.
    """

    def __init__(
        self,
        cfg: Settings,
        work_dir: Path,
        parts: Parts,
        outputs: Outputs,
        progress: Progress,
        evaluations: Evaluations,
    ):
        self._cfg = cfg
        self._work_dir = work_dir
        self._identity = parts.identity
        self._agent = parts.agent
        self._replay_buffer = parts.replay_buffer
        self._preloaded = parts.preloaded
        self._progress = progress
        self._logger = outputs.logger
        self._envs = EnvEpisodes(parts.envs)
        self._parts: dict[str, Stateful] = {"progress": progress, "envs": self._envs, "n_step": parts.n_step}
        if parts.seed_policy is not parts.agent:
            self._parts["seed_policy"] = parts.seed_policy
        if hasattr(outputs.own_evaluator, "state_dict"):
            self._parts["evaluator"] = outputs.own_evaluator
        self._parts["evaluations"] = evaluations
        if cfg.preload and cfg.preload_share:
            self._parts["preloaded"] = parts.preloaded
        self._parts["random"] = GlobalGenerators(parts.device)  # last of these, as restoring them may draw
        self._checkpoints = Checkpoints(work_dir, cfg.keep_checkpoints, parts.identity)
        self.is_saved = bool(cfg.checkpoint_frequency)  # whether there are checkpoints to go on from
        if self.is_saved and parts.agent.state_dict() is None:
            print(f"This run cannot be resumed: {type(parts.agent).__name__} has no state_dict.", flush=True)
            self.is_saved = False

    @property
    def last_checkpoint(self) -> Path | None:
        """The newest one that is whole."""
        last_step = self._checkpoints.last_step
        return None if last_step is None else self._checkpoints.path(last_step)

    def save(self, is_last: bool = False) -> None:
        """Writes a checkpoint, unless this step has one. Where that fails, the run goes on with the old one.

        Args:
            is_last: nothing comes after it.

        Raises:
            RunError: for a loss or a weight that is not finite: no checkpoint is to hold one. Also if the last one
                cannot be written.
            UserError: for a replay buffer whose state could not be read back.
            OSError: if there is no old one, or the run's folder is gone.
        """
        step, last_step = self._progress.step, self._checkpoints.last_step
        if not self.is_saved or last_step == step:
            return
        require_finite_losses(self._logger.peek())
        parts = {"agent": self._agent.state_dict(), "run": self._state_dict()}
        wrong = non_finite(parts["agent"], "agent")
        if wrong:
            raise RunError(f"{wrong} is not finite")
        rows = None
        if self._cfg.save_replay_buffer and isinstance(self._replay_buffer, ReplayBuffer):
            rows = self._replay_buffer
        elif self._cfg.save_replay_buffer:
            parts["replay_buffer"] = self._whole_buffer()
        try:
            preloaded = self._preloaded.buffer if self._cfg.save_replay_buffer else None
            self._checkpoints.save(step, parts, {"policy": partial(_export_policy, self._agent)}, rows, preloaded)
        except OSError as error:
            if last_step is None or not self._work_dir.is_dir():
                raise
            said = f"No checkpoint at step {step}: {error.strerror}; that of step {last_step} stays"
            print(said, file=sys.stderr, flush=True)
            if is_last:
                raise RunError("the run's end is in no checkpoint") from error

    def restore(self, without: Collection[str] = ()) -> np.ndarray:
        """Loads the newest whole checkpoint.

        The logs come last, as they are cut back: until all else is loaded, nothing that the run left is changed.

        Args:
            without: what may be left out if it is damaged (see run/saving/damaged.py); what is left of it is set aside.

        Returns:
            Every environment's newest observation, (num_envs, obs_dim).

        Raises:
            UserError: if there is none, or it does not fit, or its logs are damaged.
        """
        found, broken = self._newest(without)
        if found.step > self._cfg.num_train_steps:
            raise UserError(f"num_train_steps={self._cfg.num_train_steps}: the run is at step {found.step} already")
        lost = self._leave_damaged_buffer(found) if damaged.REPLAY_BUFFER in without else []
        agent, state = found.load("agent"), found.load("run")
        try:
            if require_count(state["progress"]["step"], "step") != found.step:
                raise ValueError(f"it is of step {state['progress']['step']}")
            lost += self._lost_logs(state["logger"], without)
            self._agent.load_state_dict(agent)
            is_saved = self._restore_buffer(found, state["replay_buffer"])
            num_preloaded = self._restore_preloaded(found, is_saved)
            for name, part in self._parts.items():
                part.load_state_dict(state[name])
            run_folder.unmark_finished(self._work_dir)
            for path in filter(Path.exists, lost):
                print(f"{path}: what is left of it is kept as {damaged.set_aside(path).name}", flush=True)
            self._logger.load_state_dict(state["logger"])
        except (UserError, RunError):
            raise
        except Exception as error:  # whatever a part says of a state that is not its own
            said = f"{type(error).__name__}: {one_line(error)}"
            raise UserError(f"{found.path}: does not fit this run ({said})") from error
        if not is_saved:
            self._collect_anew(num_preloaded)
        print(f"Continuing from {found.path}", flush=True)
        keep = self._cfg.keep_checkpoints
        self._checkpoints = Checkpoints(self._work_dir, keep, self._identity, found, broken)
        return self._envs.obs

    def _newest(self, without: Collection[str]) -> tuple[Checkpoint, list[Path]]:
        """The newest checkpoint to go on from; one with a damaged replay buffer only where that may be left out."""
        needs_buffer = damaged.REPLAY_BUFFER not in without
        try:
            return checkpoint.newest_whole(self._work_dir, "agent", "run", buffer=needs_buffer, identity=self._identity)
        except NoneWholeError as error:
            if error.without_buffer is None:
                raise
            offer = damaged.offer(self._work_dir, damaged.REPLAY_BUFFER, without)
            raise UserError(
                f"{error}; {offer} goes on from {error.without_buffer.name} without its replay buffer, which is filled "
                "anew before the run learns on"
            ) from None

    def _leave_damaged_buffer(self, found: Checkpoint) -> list[Path]:
        """Leaves a replay buffer that is not whole out of a checkpoint; returns what to set aside of it."""
        try:
            found.verify(buffer=True)
        except BrokenError as error:
            print(f"{found.path}: {error}; going on without the replay buffer", flush=True)
            rows = [found.path.parent / checkpoint.BUFFER] if found.segments else []
            found.leave_buffer()
            return rows
        print(damaged.not_needed(damaged.REPLAY_BUFFER), flush=True)
        return []

    def _lost_logs(self, state: dict[str, Any], without: Collection[str]) -> list[Path]:
        """The damaged log files, which may be left out.

        Raises:
            UserError: if they may not.
        """
        lost = self._logger.lost(state) if hasattr(self._logger, "lost") else {}
        said = "; ".join(f"{path}: {wrong}" for path, wrong in lost.items())
        if lost and damaged.LOGS not in without:
            offer = damaged.offer(self._work_dir, damaged.LOGS, without)
            raise UserError(f"{said}; {offer} goes on with new files, and keeps what is left of the old")
        if damaged.LOGS in without:
            print(f"{said}; going on with new files" if lost else damaged.not_needed(damaged.LOGS), flush=True)
        return list(lost)

    def _state_dict(self) -> dict[str, Any]:
        buffer = self._replay_buffer
        counters = buffer.state_dict() if isinstance(buffer, ReplayBuffer) else {"num_added": buffer.num_added}
        state = {name: part.state_dict() for name, part in self._parts.items()}
        return state | {"logger": self._logger.state_dict(), "replay_buffer": counters}

    def _whole_buffer(self) -> dict[str, Any]:
        """The state of a buffer that is no ReplayBuffer. It is looked at now: when it is loaded is too late."""
        state = self._replay_buffer.state_dict()
        wrong = not_plain(state, "state")
        if wrong:
            raise UserError(
                f"replay_buffer._target_={self._cfg.replay_buffer['_target_']}: {wrong} of its state_dict could not be "
                "read back from a checkpoint; tensors, numbers, strings, lists and dictionaries can be"
            )
        return state

    def _restore_buffer(self, found: Checkpoint, counters: dict[str, Any]) -> bool:
        """Returns whether the transitions were saved with the rest."""
        buffer, num_added = self._replay_buffer, counters["num_added"]
        if not isinstance(buffer, ReplayBuffer):
            if found.has("replay_buffer"):
                buffer.load_state_dict(found.load("replay_buffer"))
            return found.has("replay_buffer") or not num_added
        if found.segments:
            found.load_rows(buffer, counters)
        buffer.load_state_dict(counters if found.segments else counters | {"num_added": 0})
        return bool(found.segments) or not num_added

    def _restore_preloaded(self, found: Checkpoint, is_saved: bool) -> int:
        """The rows that the run began with, from the checkpoint or, where they were not saved, from where they came.

        Returns:
            How many of them were put into the replay buffer again.
        """
        if self._cfg.preload_share and found.preloaded:
            self._preloaded.restore(found.preloaded, found.load_preloaded)
        elif self._cfg.preload_share or not is_saved:
            return self._preloaded.fill()
        return 0

    def _collect_anew(self, num_preloaded: int) -> None:
        """Has the updates wait for new transitions, where those in the buffer were not saved, or are lost.

        Args:
            num_preloaded: in the buffer already.
        """
        cfg, progress = self._cfg, self._progress
        first = max(cfg.num_seed_steps // cfg.action_repeat, progress.updates_from)
        progress.updates_from = min(first + num_preloaded, self._replay_buffer.capacity)
        new = progress.updates_from - num_preloaded
        print(f"There is no saved replay buffer: no updates before {new} new transitions")


class EnvEpisodes:
    """The training environments as a part: each one's state is its episode's number and actions.

    Attributes:
        obs: (num_envs, obs_dim), everyone's newest observation, once a state was loaded.
    """

    def __init__(self, envs: SyncVectorEnv | AsyncVectorEnv):
        self._envs = envs
        self.obs: np.ndarray

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": list(self._envs.call("state_dict"))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        everyone = np.ones(self._envs.num_envs, bool)
        self.obs = self._envs.reset(options={"reset_mask": everyone, "states": state["episodes"]})[0]


class GlobalGenerators:
    """Python's, NumPy's and torch's global random generators, and the device's."""

    def __init__(self, device: torch.device):
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        kind, keys, *rest = np.random.get_state(legacy=True)
        numpy_state = (kind, np.asarray(keys).tolist(), *rest)
        state = {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state()}
        return state | ({"cuda": torch.cuda.get_rng_state(self._device)} if self._device.type == "cuda" else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """A GPU's only on a GPU."""
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["torch"])
        if self._device.type == "cuda" and "cuda" in state:
            torch.cuda.set_rng_state(state["cuda"], self._device)


def _export_policy(agent: Any, path: Path) -> None:
    """The policy alone, of agents and networks that can be saved so."""
    if hasattr(agent, "save_policy"):
        with contextlib.suppress(UserError):
            agent.save_policy(path)
