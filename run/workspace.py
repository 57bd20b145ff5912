"""One run in its folder, from its parts to its end."""

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf

from agent import require_support
from agent.off_policy import OffPolicyAgent, takes_tensors
from agent.policy import plain_policy
from envs.opengl import NO_VIDEOS
from envs.simulator import Simulator
from replay_buffer import ReplayBuffer
from run import buffers, environments, provenance
from run.agents import EnvSpec, build_agent, build_seed_policy, identity_of
from run.buffers import Preloaded
from run.checkpoint import BUFFER, PRELOADED, Checkpoints, GlobalGenerators
from run.evaluation.background import make_background_evaluator, make_evaluator
from run.evaluation.evaluations import BestPolicy, Evaluations, PrunedError
from run.evaluation.evaluator import Evaluator
from run.execution import choose_execution, has_free_core, resolve_device, set_execution, set_precision
from run.loop import Loop
from run.progress import Progress
from run.stopping import Requeued, Stopping
from settings.keys import name_of_group
from settings.operating_system import keep_freed_memory
from settings.schema import Settings
from utils import (
    RunError,
    UserError,
    command_line,
    dotted,
    lock,
    non_finite,
    one_line,
    set_seed_everywhere,
    write_atomic,
)

FINISHED = "finished.json"  # in the folder of a run that is complete


class Workspace:
    """Trains one run in its folder (see run/loop.py).

    Args:
        resume: continue from the folder's newest intact checkpoint; otherwise the folder must hold no run.
        prune: see Evaluations.
    """

    def __init__(self, cfg: Settings, work_dir: Path, resume: bool = False, prune: Callable[[int], bool] | None = None):
        self.cfg, self.work_dir = cfg, work_dir
        try:
            descriptor = lock(work_dir / ".lock")  # the system unlocks it when the process ends, however it ends
        except BlockingIOError:
            raise UserError(f"{work_dir}: another process is working in this folder") from None
        self._closing = ExitStack()
        self._closing.callback(os.close, descriptor)
        try:
            if not resume and any(work_dir.glob("*.csv")):
                raise UserError(f"{work_dir}: a run is there already; choose another folder, or continue with resume=")
            self._build(resume, prune)
        except BaseException:
            self.close()
            raise

    def _build(self, resume: bool, prune: Callable[[int], bool] | None) -> None:
        """Builds all parts. The order determines which random numbers each draws for a given seed."""
        cfg, work_dir = self.cfg, self.work_dir
        print(f"Folder: {work_dir}", flush=True)

        # The machine.
        device = resolve_device(cfg.device)
        if cfg.num_threads is not None:
            torch.set_num_threads(cfg.num_threads)
        keep_freed_memory()
        precision = set_precision(cfg.precision, device)
        films = cfg.save_video and environments.can_render(cfg)
        set_seed_everywhere(cfg.seed)

        # Environments.
        self.envs = environments.make_train_envs(cfg)
        self._closing.callback(self.envs.close)
        spec = EnvSpec.of(self.envs)

        # Agent, and what acts for the first `num_seed_steps`.
        self.agent = build_agent(cfg, spec, device)
        execution = choose_execution(cfg.execution, self.agent, device)
        set_execution(self.agent, execution, device)
        self.seed_policy = build_seed_policy(cfg, self.agent, spec, device)

        # Replay buffer, and the transitions that it begins with.
        self.n_step = buffers.make_n_step(cfg)
        storage = buffers.choose_storage(cfg, spec, device)
        if isinstance(self.envs, Simulator) and storage == "device" and takes_tensors(self.agent):
            self.envs.tensors_on = device
        self.replay_buffer = buffers.make_replay_buffer(cfg, spec, device, storage)
        require_support(self.agent, self.replay_buffer)
        action_map = self.envs.call("action_map")[0]
        self.data = Preloaded(cfg, spec, device, self.replay_buffer, action_map)

        # Logger. `used` are the settings of config.yaml, with the automatic choices.
        self.used = _use(cfg, spec) | {
            "device": str(device),
            "num_threads": torch.get_num_threads(),
            "precision": precision,
            "execution": execution,
            "replay_storage": storage,
            "async_envs": environments.in_processes(cfg),
        }
        self.logger = instantiate(self.used["logger"], _convert_="all")(log_dir=work_dir)

        # Evaluations. The project's evaluator is built when needed; a user's is built now, as it may have a state.
        make: Callable[[], Any] = partial(make_evaluator, cfg, work_dir, films)
        own_evaluator = None if get_object(cfg.evaluator["_target_"]) is Evaluator else make()
        self.stopping = Stopping()
        first_batch = 1 if buffers.draws_with_replacement(cfg) else self.agent.batch_size
        self.progress = Progress(cfg, max(cfg.min_buffer_size, first_batch))
        self.evaluations = Evaluations(
            self.agent,
            (lambda: own_evaluator) if own_evaluator else make,
            self.logger,
            self.progress,
            self.stopping,
            make_background_evaluator(cfg, work_dir, films, self.agent, device) if own_evaluator is None else None,
            best=BestPolicy(work_dir) if cfg.checkpoint_frequency else None,
            prune=prune,
        )
        self._closing.callback(self.evaluations.close)

        # Checkpoints, and the state of the run that continues.
        self.checkpoints = Checkpoints(work_dir, cfg.keep_checkpoints, identity_of(cfg, spec))
        self._saves = bool(cfg.checkpoint_frequency) and self.agent.state_dict() is not None
        self.stateful = {
            "progress": self.progress,
            "n_step": self.n_step,
            **({} if self.seed_policy is self.agent else {"seed_policy": self.seed_policy}),
            **({"evaluator": own_evaluator} if hasattr(own_evaluator, "state_dict") else {}),
            "evaluations": self.evaluations,
            "random": GlobalGenerators(device),  # after the others, whose restoring may draw random numbers
            "logger": self.logger,  # the last, as it cuts the logs back
        }
        self._obs: Any = None  # the newest observations of a resumed run, (num_envs, *obs_shape)
        if resume:
            self._restore()
        else:
            self.data.fill(self.agent)
            self.logger.log_settings(self.used)
        write_atomic(work_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(self.used)))

        # The loop.
        provenance.add_entry(work_dir, device, self.progress.step)
        has_core = execution == "recorded" and has_free_core(device) and not isinstance(self.envs, Simulator)
        # EGL's context belongs to the thread that first drew with it.
        self.may_step_in_thread = has_core and (not cfg.from_pixels or environments.in_processes(cfg))
        self.loop = Loop(self)
        self._closing.callback(self.loop.stepping.close)

        if films != cfg.save_video:
            print(NO_VIDEOS)
        if cfg.checkpoint_frequency and not self._saves:
            print(f"This run cannot be resumed: {type(self.agent).__name__} has no state_dict.")

    def _restore(self) -> None:
        """Loads the newest intact checkpoint. Nothing in the folder changes before the last part is restored."""
        cfg, progress, buffer = self.cfg, self.progress, self.replay_buffer
        saved = self.checkpoints.load_newest("agent", "run", "replay_buffer")
        self.agent.load_state_dict(saved.states["agent"])
        if counters := saved.states["run"].get("replay_buffer"):
            if has_rows := bool(saved.manifest[BUFFER]) or not counters["num_added"]:
                saved.read_rows(BUFFER, buffer)
                buffer.load_state_dict(counters)
        elif has_rows := "replay_buffer" in saved.states:  # a user's own
            buffer.load_state_dict(saved.states["replay_buffer"])
        num_preloaded = 0
        if cfg.preload_share and saved.manifest[PRELOADED]:
            self.data.restore(saved)
        elif cfg.preload_share or not has_rows:
            num_preloaded = self.data.fill()
        # The episode of every environment is its number and its actions, which are replayed.
        options = {"reset_mask": np.ones(cfg.num_envs, bool), "states": saved.states["run"]["episodes"]}
        self._obs = self.envs.reset(options=options)[0]
        for name, part in self.stateful.items():
            part.load_state_dict(saved.states["run"][name])
        if getattr(self.envs, "cannot_restore", False):  # the saved episodes cannot be continued
            progress.begin_episodes(np.ones(cfg.num_envs, bool))
            self.n_step.forget()
        (self.work_dir / FINISHED).unlink(missing_ok=True)
        if not has_rows:
            num_new = max(cfg.num_seed_steps // cfg.action_repeat, progress.updates_from)
            progress.updates_from = min(num_new + num_preloaded, buffer.capacity)
            print(f"There is no saved replay buffer: no updates before {num_new} new transitions")
        print(f"Continuing from {saved.path}", flush=True)

    @property
    def step(self) -> int:  # environment steps so far
        return self.progress.step

    def run(self) -> float:
        """Trains until the run is complete or pruned, and closes it; returns the mean return of its last evaluation.

        Raises Stopped if a signal stopped the run, which was saved. Any other exception gets a note: the step, and the
        newest checkpoint.
        """
        progress, is_pruned = self.progress, False
        try:
            with self.stopping:  # until the run is marked as finished
                try:
                    is_complete = self.loop.run(self._obs)
                except PrunedError:
                    is_complete = is_pruned = True
                if not is_complete:
                    self.loop.end_episodes(progress.unfinished())
                self.logger.close()
                if self.cfg.save_figure and self.stopping.signal_number in (None, signal.SIGINT):
                    self._draw_curves()
                if is_complete:
                    result = {"step": self.step, "last_return": progress.last_return, "pruned": is_pruned}
                    write_atomic(self.work_dir / FINISHED, json.dumps(result))
                if self.stopping.signal_number:  # also after the last step, as it ends a sweep, too
                    message = f"{signal.Signals(self.stopping.signal_number).name} at step {self.step}"
                    if self._saves:
                        message += f"; continue with: {command_line('train.py', f'resume={self.work_dir}')}"
                    self.stopping.end(message)
        except Requeued:
            raise
        except (Exception, SystemExit) as error:
            fault = RunError("sys.exit was called") if isinstance(error, SystemExit) else error
            newest = self.checkpoints.newest
            kept = f"the newest checkpoint is {newest}" if newest else "nothing was saved"
            fault.add_note(f"stopped at step {self.step}; {kept}")
            raise fault from (error if fault is not error else error.__cause__)
        finally:
            with suppress(OSError):  # a full disk
                self.logger.close()
            self.close()
        print(f"{'Pruned' if is_pruned else 'Finished'} at step {self.step}: return {progress.last_return:.1f}")
        print(f"Evaluate: {command_line('evaluate.py', str(self.work_dir))}", flush=True)
        return progress.last_return

    def _draw_curves(self) -> None:
        try:
            from study.figures import draw_run  # not before: matplotlib takes a second to import

            draw_run(self.work_dir)
        except Exception as error:  # a broken matplotlib must not change how the run ends
            print(f"No curves.png: {type(error).__name__}: {one_line(error)}", file=sys.stderr, flush=True)

    def save(self, is_last: bool) -> None:
        """Writes a checkpoint, unless this step has one. If that fails, the run continues with the previous one.

        Raises:
            RunError: if a weight is not finite.
            OSError: if there is no previous checkpoint, it is the run's last one, or the run's folder is gone.
        """
        newest, buffer = self.checkpoints.newest, self.replay_buffer
        if not self._saves or (newest and newest.name == f"step_{self.step}"):
            return
        # A checkpoint must not replace a good one with weights that have diverged.
        states = {"agent": self.agent.state_dict()}
        if diverged := non_finite(states["agent"], "agent"):
            raise RunError(f"{diverged} is not finite")
        states["run"] = {name: part.state_dict() for name, part in self.stateful.items()}
        states["run"]["episodes"] = list(self.envs.call("state_dict"))
        if self.data.buffer is not None:
            states["run"]["preloaded"] = self.data.buffer.state_dict()
        is_ours = isinstance(buffer, ReplayBuffer)
        if is_ours:
            states["run"]["replay_buffer"] = buffer.state_dict()
        elif self.cfg.save_replay_buffer:
            states["replay_buffer"] = buffer.state_dict()
        if isinstance(self.agent, OffPolicyAgent):
            with suppress(UserError):  # a network of a user's class
                states["policy"] = plain_policy(self.agent.policy)
        rows = (buffer if is_ours else None, self.data.buffer) if self.cfg.save_replay_buffer else ()
        try:
            self.checkpoints.save(self.step, states, *rows)
        except OSError as error:
            if newest is None or is_last or not self.work_dir.is_dir():
                raise
            print(f"No checkpoint at step {self.step}: {error}; {newest.name} stays", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Closes the run's parts and releases the folder's lock."""
        self._closing.close()


def read_finished(folder: Path) -> dict[str, Any] | None:
    """Returns `step`, `last_return` and `pruned` of a run that is complete, otherwise None."""
    path = folder / FINISHED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _use(cfg: Settings, spec: EnvSpec) -> dict[str, Any]:
    """Returns the settings with the environment's shapes; sinks that are off are None."""
    used = dataclasses.asdict(cfg)
    sinks = used["logger"]["sinks"]
    for name, is_on in (("tensorboard", cfg.log_save_tb), ("wandb", cfg.log_save_wandb)):
        if not is_on:
            sinks[name] = None
    if sinks.get("wandb") and sinks["wandb"].get("group", "") is None:
        sinks["wandb"]["group"] = name_of_group(dotted(dataclasses.asdict(cfg)))
    used["agent"] = {"name": cfg.agent["name"], **spec.agent_arguments(), **used["agent"]}
    return used
