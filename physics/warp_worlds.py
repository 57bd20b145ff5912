"""Worlds stepped by mujoco-warp, on a GPU or, for tests, on a CPU."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import mujoco_warp
import numpy as np
import torch
import warp
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envs.episodes import TRAIN_STREAM, episode_seed
from physics.indices import Indices
from physics.task import Task
from physics.worlds import SuiteSimulation

# Arrays of MjData that an episode's start fills; mujoco-warp does not compute positions of objects fixed to the world.
STARTED = ("qpos", "qvel", "act", "qacc_warmstart", "geom_xpos", "site_xpos")
SPARE_ROWS, ROWS_A_JOINT = 64, 8  # rows of constraints: for each world, plus for each degree of freedom

warp.config.log_level = warp.LOG_WARNING  # otherwise it prints a line for each kernel it compiles


class Views:
    """Returns MjData's arrays, by MuJoCo's names, as tensors (N, *shape) that share mujoco-warp's memory."""

    def __init__(self, data: mujoco_warp.Data):
        self._data = data

    def __getattr__(self, name: str) -> torch.Tensor:
        if name.startswith("_"):
            raise AttributeError(name)
        view = warp.to_torch(getattr(self._data, name))
        view = self.__dict__[name] = view.flatten(2) if name.endswith("xmat") else view  # rotations have nine columns
        return view


class WarpWorlds(SuiteSimulation, VectorEnv[torch.Tensor, torch.Tensor, torch.Tensor]):
    """Worlds whose observations and rewards are tensors on a device, in float32, for envs.simulator.Simulator.

    dm_control starts every episode on the host, and only the initial state is sent to the device: seeds, initial states
    and first observations are those of physics.training.TrainingWorlds. A thread prepares each world's next start while
    the worlds step, as one can take milliseconds. On a GPU a step is one CUDA graph.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, env: gym.Env, make_task: type[Task], count: int, run_seed: int, device: torch.device):
        super().__init__(env, make_task)
        self.num_envs, self._run_seed, self._device = count, run_seed, device
        self.single_observation_space, self.single_action_space = env.observation_space, self.action_map.space
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self._episodes = [0] * count
        self._steps = torch.zeros(count, dtype=torch.int64, device=device)  # steps of the current episode
        self._starter = ThreadPoolExecutor(1)  # from here on alone in using the environment
        self._next: dict[int, Future[list[np.ndarray]]] = {}  # each world's next start
        env.reset(seed=0)  # an episode's start sets constants of the model, too
        arrays = mujoco_warp.Model.__annotations__  # one that each world can have for itself has the shape ("*", …)
        fields = [name for name in make_task.model_fields if getattr(arrays[name], "shape", ("",))[0] == "*"]
        with warp.ScopedDevice(str(device)):
            num_rows = SPARE_ROWS + ROWS_A_JOINT * self._model.nv
            self._warp_model = mujoco_warp.put_model(self._model, dict.fromkeys(fields, count))
            self._warp_data = mujoco_warp.put_data(self._model, self._data, count, njmax=num_rows)
        self._state: Any = Views(self._warp_data)
        self._indices = Indices(device)
        self._rows = {name: getattr(self._state, name) for name in STARTED}
        self._rows |= {name: warp.to_torch(getattr(self._warp_model, name)) for name in fields}
        self._of_host = [getattr(self._model if name in fields else self._data, name) for name in self._rows]
        self._look, self._advance = self._prepare_work(self._look_around), self._prepare_work(self._take_step)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begins the next episode in the worlds of the mask `options["reset_mask"]`, or in all.

        Returns:
            Observations (N, obs_dim), float32; 0 for the worlds that were not reset.
        """
        which = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        starts = [self._begin(index) for index in which.tolist()]
        worlds = torch.as_tensor(which, device=self._device)
        obs = torch.zeros(self.num_envs, *(self.single_observation_space.shape or ()), device=self._device)
        for rows, values in zip([obs, *self._rows.values()], zip(*starts, strict=True), strict=True):
            rows[worlds] = torch.as_tensor(np.stack(values), dtype=torch.float32, device=self._device)
        self._steps[worlds] = 0
        self._look()
        return obs, {}

    def _begin(self, index: int) -> list[np.ndarray]:
        """Takes the start of a world's next episode, and has the one after it prepared."""
        start = self._next.get(index) or self._prepare(index)
        values = start.result()
        self._episodes[index] += 1
        self._next[index] = self._prepare(index)
        return values

    def _prepare(self, index: int) -> Future[list[np.ndarray]]:
        return self._starter.submit(self._start, index, self._episodes[index] + 1)

    def _start(self, index: int, episode: int) -> list[np.ndarray]:
        """Returns the first observation of a world's episode, and its row of each array in `_rows`."""
        obs, _ = self._env.reset(seed=episode_seed(self._run_seed, TRAIN_STREAM, index, episode))
        return [obs, *(array.copy() for array in self._of_host)]

    def step(self, actions: torch.Tensor) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Takes one step in each world, for the task's own actions (N, |A|)."""
        self._state.ctrl.copy_(torch.as_tensor(actions))
        self._advance()
        self._steps += 1
        truncated = self._steps == self._limit
        with self._indices:
            obs, rewards = torch.cat(self._task.observation(self._state), 1), self._task.reward(self._state)
        return obs, rewards, torch.zeros_like(truncated), truncated, {}

    def _look_around(self) -> None:
        """Does what mj_step1 does; keeps acceleration sensors, which mujoco_warp.step1 would set to 0."""
        model, data = self._warp_model, self._warp_data
        mujoco_warp.fwd_position(model, data)
        mujoco_warp.sensor_pos(model, data)
        mujoco_warp.fwd_velocity(model, data)
        mujoco_warp.sensor_vel(model, data)

    def _take_step(self) -> None:
        """Steps as Worlds does, then computes what depends on position and velocity from the new state."""
        model, data = self._warp_model, self._warp_data
        if self._runge_kutta:
            for _ in range(self._sub_steps):
                mujoco_warp.step(model, data)
        else:
            data.sensordata.zero_()  # mujoco-warp adds up the forces that a sensor feels
            mujoco_warp.step2(model, data)
            for _ in range(1, self._sub_steps):
                mujoco_warp.step(model, data)
        self._look_around()

    def _prepare_work(self, work: Callable[[], None]) -> Callable[[], None]:
        """Returns a function that does `work` on the device; on a GPU, compiles and captures it now."""

        def run() -> None:
            with warp.ScopedDevice(str(self._device)):
                work()

        if self._device.type != "cuda":
            return run
        run()
        with warp.ScopedDevice(str(self._device)):
            with warp.ScopedCapture() as capture:
                work()
            warp.synchronize_device()
        return lambda: warp.capture_launch(capture.graph, warp.stream_from_torch(self._device))

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that later steps depend on."""
        rows = {name: rows.to("cpu", copy=True) for name, rows in self._rows.items()}
        return {"episodes": list(self._episodes), "steps": self._steps.cpu().clone(), "rows": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._episodes = list(state["episodes"])
        for start in self._next.values():
            start.cancel()
        self._next.clear()
        self._steps.copy_(state["steps"])
        for name, rows in state["rows"].items():
            self._rows[name].copy_(rows)
        self._look()

    def close_extras(self, **kwargs: Any) -> None:
        self._starter.shutdown(cancel_futures=True)
        self._env.close()
