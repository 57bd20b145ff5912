"""Collects and restores the state of a run's parts. Checkpoints hold it, and a resumed run begins with it."""

import random
import shlex
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from replay_buffer import ReplayBuffer
from run.build import Parts
from run.data import sources
from run.evaluation.evaluations import Evaluations
from run.progress import Progress
from run.saving import checkpoint, damaged, trust
from run.saving import folder as run_folder
from run.saving.best import BestPolicy
from run.saving.checkpoint import AllDamagedError, BrokenError, Checkpoint
from run.saving.checkpoint_writer import CheckpointWriter
from settings import compose
from settings.schema import Settings
from utils import RunError, UserError, non_finite, not_plain, one_line, require_count, require_finite_losses


@dataclass(eq=False)
class SavedRun:
    """Saves a run in checkpoints, and restores it from them.

    The agent's state has a file of its own, as evaluating needs nothing else. The rows of a ReplayBuffer are saved in
    segments, any other replay buffer in one file. Everything else goes into `run.pt`. Every part has `state_dict` and
    `load_state_dict`, except perhaps the evaluator; a state is tensors and plain values, nested.

    Attributes:
        own_evaluator: a user's evaluator, which may have a state; None for the project's.
        is_saved: whether the run writes checkpoints.
    """

    cfg: Settings
    work_dir: Path
    parts: Parts
    logger: Any
    own_evaluator: Any
    progress: Progress
    evaluations: Evaluations
    best: BestPolicy

    def __post_init__(self) -> None:
        cfg, parts = self.cfg, self.parts
        self._envs = EnvEpisodes(parts.envs)
        self._stateful: dict[str, Any] = {"progress": self.progress, "envs": self._envs, "n_step": parts.n_step}
        if parts.seed_policy is not parts.agent:
            self._stateful["seed_policy"] = parts.seed_policy
        if hasattr(self.own_evaluator, "state_dict"):
            self._stateful["evaluator"] = self.own_evaluator
        self._stateful["evaluations"] = self.evaluations
        if cfg.preload and cfg.preload_share:
            self._stateful["preloaded"] = parts.data
        # The generators are restored last, as restoring another part may draw random numbers.
        self._stateful["random"] = GlobalGenerators(parts.device)
        self._writer = CheckpointWriter(self.work_dir, cfg.keep_checkpoints, parts.identity)
        self.is_saved = bool(cfg.checkpoint_frequency)
        if self.is_saved and parts.agent.state_dict() is None:
            print(f"This run cannot be resumed: {type(parts.agent).__name__} has no state_dict.", flush=True)
            self.is_saved = False

    @property
    def last_checkpoint(self) -> Path | None:
        """The folder of the newest checkpoint that can be loaded; None if there is none."""
        last_step = self._writer.last_step
        return None if last_step is None else self._writer.path(last_step)

    def save(self, is_last: bool = False) -> None:
        """Writes a checkpoint, unless this step has one. If that fails, the run continues with the previous one.

        Raises:
            RunError: if a loss or a weight is not finite, or the last checkpoint cannot be written.
            UserError: if a part's state could not be read back.
            OSError: if there is no previous checkpoint, or the run's folder is gone.
        """
        step, last_step = self.progress.step, self._writer.last_step
        if not self.is_saved or last_step == step:
            return
        # A checkpoint must not replace a good one with weights that have diverged.
        require_finite_losses(self.logger.peek())
        agent, buffer = self.parts.agent.state_dict(), self.parts.replay_buffer
        saves_rows = self.cfg.save_replay_buffer
        if diverged := non_finite(agent, "agent"):
            raise RunError(f"{diverged} is not finite")
        has_segments = isinstance(buffer, ReplayBuffer)
        state = {name: part.state_dict() for name, part in self._stateful.items()}
        state |= {"logger": self.logger.state_dict(), "best": self.best.state_dict()}
        state["replay_buffer"] = buffer.state_dict() if has_segments else {"num_added": buffer.num_added}
        states = {"agent": agent, "run": state}
        if saves_rows and not has_segments:
            states["replay_buffer"] = buffer.state_dict()
        self._require_plain(states)
        rows = buffer if saves_rows and has_segments else None
        save_policy = getattr(self.parts.agent, "save_policy", lambda path: None)
        try:
            self._writer.save(step, states, save_policy, rows, self.parts.data.buffer if saves_rows else None)
        except OSError as error:
            if last_step is None or not self.work_dir.is_dir():
                raise
            message = f"No checkpoint at step {step}: {error.strerror}; that of step {last_step} stays"
            print(message, file=sys.stderr, flush=True)
            if is_last:
                raise RunError("the end of the run is not saved") from error

    def _require_plain(self, states: dict[str, Any]) -> None:
        """Raises UserError for a state that could not be read back: on loading, it would be too late."""
        for name, state in (states["run"] | states).items():
            if name != "run" and (fault := not_plain(state, "state")):
                node = getattr(self.cfg, name, None)
                part = f"{name}._target_={node['_target_']}" if isinstance(node, dict) else name
                raise UserError(
                    f"{part}: {fault} of its state_dict could not be read back from a checkpoint; tensors, Python's "
                    "own numbers and strings, lists and dictionaries can be"
                )

    def restore(self, without: Collection[str] = (), trusted: Collection[str] = ()) -> np.ndarray:
        """Loads the newest intact checkpoint.

        Args:
            without: parts to leave out if they are damaged (see run/saving/damaged.py); their remains are renamed.
            trusted: sources that `preload` may name if they have to be read again (see run/saving/trust.py).

        Returns:
            The newest observation of every environment, (num_envs, *obs_shape).

        Raises:
            UserError: if there is no such checkpoint, it does not fit the run, or the logs are damaged.
        """
        saved, broken = self._newest(without)
        # The last step of the loop begins before num_train_steps, and may end beyond it.
        if saved.step - self.cfg.num_envs * self.cfg.action_repeat >= self.cfg.num_train_steps:
            raise UserError(f"num_train_steps={self.cfg.num_train_steps}: the run is at step {saved.step} already")
        lost = self._drop_damaged_buffer(saved) if damaged.REPLAY_BUFFER in without else []
        agent_state, state = saved.load("agent"), saved.load("run")
        try:
            if require_count(state["progress"]["step"], "step") != saved.step:
                raise ValueError(f"it is of step {state['progress']['step']}")
            lost += self._lost_logs(state["logger"], without)
            self.parts.agent.load_state_dict(agent_state)
            has_rows = self._restore_buffer(saved, state["replay_buffer"])
            num_preloaded = self._restore_preloaded(saved, has_rows, trusted)
            for name, part in self._stateful.items():
                part.load_state_dict(state[name])
            if getattr(self._envs.envs, "cannot_restore", False):  # the saved episodes cannot be continued
                self.progress.begin_episodes(np.ones(self.cfg.num_envs, bool))
                self._stateful["n_step"].forget()
            # The run's folder has not been changed so far. From here on it is: the logs are truncated at the
            # checkpoint's step.
            (self.work_dir / run_folder.FINISHED).unlink(missing_ok=True)
            for path in filter(Path.exists, lost):
                print(f"{path}: what is left of it is kept as {damaged.set_aside(path).name}", flush=True)
            self.logger.load_state_dict(state["logger"])
            if "best" in state:  # older checkpoints do not have it
                self.best.load_state_dict(state["best"])
        except (UserError, RunError):
            raise
        except Exception as error:  # another part's state can make a part raise anything
            reason = f"{type(error).__name__}: {one_line(error)}"
            raise UserError(
                f"{saved.path}: does not fit this run ({reason}); if the code has changed, begin anew in another folder"
            ) from error
        if not has_rows:
            self._collect_before_updates(num_preloaded)
        print(f"Continuing from {saved.path}", flush=True)
        self._writer = CheckpointWriter(self.work_dir, self.cfg.keep_checkpoints, self.parts.identity, saved, broken)
        return self._envs.obs

    def _newest(self, without: Collection[str]) -> tuple[Checkpoint, list[Path]]:
        """Finds the checkpoint to continue from; its replay buffer may be damaged only if `without` says so."""
        needs_buffer, identity = damaged.REPLAY_BUFFER not in without, self.parts.identity
        try:
            return checkpoint.newest_intact(self.work_dir, "agent", "run", buffer=needs_buffer, identity=identity)
        except AllDamagedError as error:
            if error.without_buffer is None:
                raise
            command = damaged.command(self.work_dir, damaged.REPLAY_BUFFER, without)
            raise UserError(
                f"{error}; {command} goes on from {error.without_buffer.name} without its replay buffer, which is "
                "filled again before updates continue"
            ) from None

    def _drop_damaged_buffer(self, saved: Checkpoint) -> list[Path]:
        """Leaves the replay buffer out of a checkpoint if it is damaged; returns the folders to set aside."""
        try:
            saved.verify(buffer=True)
        except BrokenError as error:
            rows = [saved.path.parent / checkpoint.BUFFER] if saved.drop_damaged() else []
            has_rows = saved.segments or saved.has("replay_buffer")
            lost = "the preloaded rows, which are read again" if has_rows else "the replay buffer"
            print(f"{saved.path}: {error}; going on without {lost}", flush=True)
            return rows
        print(damaged.not_needed(damaged.REPLAY_BUFFER), flush=True)
        return []

    def _lost_logs(self, state: dict[str, Any], without: Collection[str]) -> list[Path]:
        """Returns the log files that are damaged.

        Raises:
            UserError: if there are any, and `without` does not include the logs.
        """
        faults = self.logger.lost(state) if hasattr(self.logger, "lost") else {}
        message = "; ".join(f"{path}: {fault}" for path, fault in faults.items())
        if damaged.LOGS in without:
            print(f"{message}; going on with new files" if faults else damaged.not_needed(damaged.LOGS), flush=True)
        elif faults:
            command = damaged.command(self.work_dir, damaged.LOGS, without)
            raise UserError(f"{message}; {command} goes on with new files, and keeps what is left of the old")
        return list(faults)

    def _restore_buffer(self, saved: Checkpoint, counters: dict[str, Any]) -> bool:
        """Restores the replay buffer; returns False if the run had transitions and the checkpoint has none of them."""
        buffer, num_added = self.parts.replay_buffer, counters["num_added"]
        if not isinstance(buffer, ReplayBuffer):
            has_rows = saved.has("replay_buffer")
            if has_rows:
                buffer.load_state_dict(saved.load("replay_buffer"))
        else:
            has_rows = bool(saved.segments)
            if has_rows:
                saved.load_rows(buffer, counters)
            buffer.load_state_dict(counters if has_rows else counters | {"num_added": 0})
        return has_rows or not num_added

    def _restore_preloaded(self, saved: Checkpoint, has_rows: bool, trusted: Collection[str]) -> int:
        """Restores the preloaded rows, from the checkpoint or else from their source.

        Returns:
            The number of preloaded rows that were put into the replay buffer again.

        Raises:
            UserError: if the source is outside of the run's folder, and not trusted.
        """
        if self.cfg.preload_share and saved.preloaded:
            self.parts.data.restore(saved)
        elif self.cfg.preload_share or not has_rows:
            names = sources.named(self.cfg.preload)
            if not all(trust.may_read(name, self.work_dir, trusted) for name in names):
                key = shlex.quote(f"preload=[{','.join(map(compose.quoted, names))}]")
                raise UserError(
                    f"resume={self.work_dir}: preloaded transitions are not in the checkpoint, and would be read "
                    f"outside of this folder; if they are yours, add {key}"
                )
            return self.parts.data.fill()
        return 0

    def _collect_before_updates(self, num_preloaded: int) -> None:
        """Delays the updates until new transitions replace those that were not saved or are lost."""
        cfg, progress = self.cfg, self.progress
        num_collected = max(cfg.num_seed_steps // cfg.action_repeat, self.parts.updates_from)
        progress.updates_from = min(num_collected + num_preloaded, self.parts.replay_buffer.capacity)
        num_new = progress.updates_from - num_preloaded
        print(f"There is no saved replay buffer: no updates before {num_new} new transitions")


class EnvEpisodes:
    """Saves the episode of every training environment: its number and its actions, which are replayed to restore it.

    Attributes:
        envs: the training environments.
        obs: (num_envs, *obs_shape), the newest observation of every environment; set by `load_state_dict`.
    """

    def __init__(self, envs: Any):
        self.envs = envs
        self.obs: Any

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": list(self.envs.call("state_dict"))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        every_env = np.ones(self.envs.num_envs, bool)
        self.obs = self.envs.reset(options={"reset_mask": every_env, "states": state["episodes"]})[0]


class GlobalGenerators:
    """Saves the global random generators of Python, NumPy, torch and, if the run uses one, its GPU."""

    def __init__(self, device: torch.device):
        self._device = device

    def state_dict(self) -> dict[str, Any]:
        kind, keys, *rest = np.random.get_state(legacy=True)
        numpy_state = (kind, np.asarray(keys).tolist(), *rest)
        state = {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state()}
        return state | ({"cuda": torch.cuda.get_rng_state(self._device)} if self._device.type == "cuda" else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["torch"])
        if self._device.type == "cuda" and "cuda" in state:  # a run may change its device
            torch.cuda.set_rng_state(state["cuda"], self._device)
