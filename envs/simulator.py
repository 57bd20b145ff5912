"""Simulators of many worlds: any `gymnasium.vector.VectorEnv`, of arrays or tensors."""

from collections.abc import Mapping
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from dmc2gym.wrappers import ActionMap
from envs.episodes import DEFAULT_INFO_KEYS, EPISODE_INFO, TAKEN, TRAIN_STREAM, episode_seed, to_number
from envs.observations import list_leaves
from utils import FLOAT32_MAX, RunError, UserError

FINAL_OBS, FINAL_INFO = "final_obs", "final_info"  # keys of Gymnasium's info with AutoresetMode.SAME_STEP
ARRAY = "numpy.ndarray"  # key of an array in a packed state


class Simulator:
    """Wraps a vector environment: flat float32 observations, each episode's last one included, and actions in [-1, 1].

    `step` returns the observation that follows an action, also at the end of an episode; `reset` with a mask then
    starts the next episodes, as with `envs.episodes.make_vector_env`, in each of Gymnasium's autoreset modes:

    - DISABLED: `reset(options={"reset_mask": mask})` resets its worlds; the mask is a NumPy array.
    - SAME_STEP: it resets a world in the step that ends its episode. `info["final_obs"]` has the last observations, by
      world, in Gymnasium's form or as one batch; without it, a time-out's row bootstraps from the observation before
      the action, as rsl_rl's PPO does.
    - NEXT_STEP: it resets worlds in the step after an episode's end and ignores their actions. `info[TAKEN]` is false
      for these worlds: no step is counted and no row is stored; an agent's `observe` gets a step of reward 0.

    Args:
        env: its observations are a Box of numbers, or Boxes nested in dictionaries or tuples; its actions are a Box.
        info_keys: as for envs.episodes.EpisodeInfo.
        first_steps: in mode DISABLED, training's first episodes are cut at a random number of steps up to this one;
            a simulator with `start_late` (envs.rsl_rl) starts so many steps into an episode. 0 cuts none.

    Attributes:
        cannot_restore: it lacks `state_dict` or `load_state_dict`, so a resumed run begins new episodes.
        tensors_on: observations stay tensors if the simulator's are on this device; otherwise they become arrays.
    """

    def __init__(self, env: Any, name: str, run_seed: int, info_keys: Any = DEFAULT_INFO_KEYS, first_steps: int = 0):
        self.env, self.num_envs, self._run_seed = env, env.num_envs, run_seed
        self._mode, actions = env.metadata.get("autoreset_mode"), env.single_action_space
        if not (isinstance(self._mode, AutoresetMode) and isinstance(actions, gym.spaces.Box)):
            raise UserError(
                f"env={name}: needs an AutoresetMode in its metadata and a Box; has {self._mode}, {actions}"
            )
        self.action_map = ActionMap(actions)
        width = gym.spaces.flatdim(env.single_observation_space)
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.single_action_space = self.action_map.policy_space
        self.cannot_restore = not all(hasattr(env.unwrapped, method) for method in ("state_dict", "load_state_dict"))
        self.tensors_on: Any = None
        self._device: torch.device | None = None  # of the simulator's tensors; None for arrays
        self._stays = False  # whether observations stay there
        self._bounds: tuple[torch.Tensor, torch.Tensor] | None = None  # bounds of actions, on that device
        self._obs: Any = None  # a tensor of the newest observations, (num_envs, obs_dim)
        self._ended = np.zeros(self.num_envs, bool)  # NEXT_STEP: the worlds that the next step resets
        # Sums over each world's current episode; nan until its first number.
        self._sums = {key: np.full(self.num_envs, np.nan) for key, how in info_keys.items() if how == "sum"}
        self._info_keys, self._first_steps, self._starts = info_keys, first_steps, 0
        self._cut_after = np.zeros(self.num_envs, int)  # steps until a first episode is cut; 0 is never

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Starts episodes of the worlds in `reset_mask`, or of all with a `seed`, or restores `states`; returns the
        newest observation of every world."""
        which = options["reset_mask"]
        if "states" in options:
            self._restore(options["states"][0])
            return self._give(self._obs), {}
        if self._obs is None or seed is not None:
            self._begin(seed)
        elif self._mode is AutoresetMode.DISABLED and which.any():
            obs = self._flatten(self.env.reset(options={"reset_mask": which.copy()})[0])
            self._obs = _choose_rows(self._obs, obs, which)
        for total in self._sums.values():
            total[which] = np.nan
        return self._give(self._obs), {}

    def _begin(self, seed: int | None = None) -> None:
        """Restarts all worlds; with the run's own seed, their first episodes have random lengths, so that they do not
        end together."""
        own_seed = episode_seed(self._run_seed, TRAIN_STREAM, self._starts)
        self._obs = self._flatten(self.env.reset(seed=own_seed if seed is None else seed)[0])
        self._starts += 1
        self._ended[:] = False
        if not self._first_steps or seed is not None:
            return
        rng = np.random.default_rng([self._run_seed, self._starts])
        if hasattr(self.env.unwrapped, "start_late"):
            self.env.unwrapped.start_late(rng, self._first_steps)
        elif self._mode is AutoresetMode.DISABLED:
            self._cut_after = rng.integers(1, self._first_steps + 1, self.num_envs)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all worlds; returns observations, then rewards, terminated and truncated as arrays, and the info."""
        obs, *outcome, info = self.env.step(self._to_env(actions))
        obs = self._flatten(obs)
        rewards, terminated, truncated = self._copy_to_host(actions, obs, outcome)
        next_obs = obs
        if self._mode is AutoresetMode.SAME_STEP and (ended := terminated | truncated).any():
            next_obs = _choose_rows(obs, self._last_obs(info, ended), ended)
            _require_finite("observation", _is_finite(next_obs).cpu())
        taken = ~self._ended
        terminated &= taken
        truncated = (truncated & taken) | ((self._cut_after == 1) & ~terminated)
        done = terminated | truncated
        self._cut_after = np.where(done, 0, np.maximum(self._cut_after - 1, 0))
        if self._mode is AutoresetMode.NEXT_STEP:
            self._ended = done
        self._obs = obs
        kept: dict[str, Any] = {"repeats": taken.astype(int)}
        if not taken.all():
            kept[TAKEN], rewards = taken, np.where(taken, rewards, 0.0)
        kept |= self._collect_numbers(info, taken, done)
        return self._give(next_obs), rewards, terminated, truncated, kept

    def _last_obs(self, info: Mapping[str, Any], done: np.ndarray) -> Any:
        """Returns the last observations of ended episodes, where `step` returned the next episodes' first ones."""
        last = info.get(FINAL_OBS)
        if last is None:
            return self._obs
        if isinstance(last, np.ndarray) and last.dtype == object:  # Gymnasium's: None for the other worlds
            flat, space = self._obs.clone(), self.env.single_observation_space
            for world in np.flatnonzero(done):
                flat[world] = torch.as_tensor(gym.spaces.flatten(space, last[world]))
            return flat
        return self._flatten(last)

    def _collect_numbers(self, info: Mapping[str, Any], taken: np.ndarray, done: np.ndarray) -> dict[str, Any]:
        """Returns the values of `info_keys` for the episodes that have ended (see envs.episodes.EpisodeInfo)."""
        numbers = {}
        for key, how in self._info_keys.items():
            if how == "last" and not done.any():
                continue
            final = _find_numbers(info.get(FINAL_INFO, {}), key, self.num_envs)
            value = np.where(done & ~np.isnan(final), final, _find_numbers(info, key, self.num_envs))
            if how == "sum":
                total, counts = self._sums[key], taken & ~np.isnan(value)
                value = self._sums[key] = np.where(counts, np.where(np.isnan(total), 0.0, total) + value, total)
            numbers[key] = value
        if not done.any():
            return {}
        pairs = np.empty(self.num_envs, object)
        for world in np.flatnonzero(done):
            pairs[world] = tuple((k, float(v[world])) for k, v in numbers.items() if not np.isnan(v[world]))
        return {EPISODE_INFO: pairs}

    def _to_env(self, actions: Any) -> Any:
        """Maps actions in [-1, 1] to the simulator's own, as arrays or tensors like its data."""
        if self._device is None:
            return self.action_map.to_env(_to_host(actions))
        actions = torch.as_tensor(actions, dtype=torch.float32, device=self._device)
        if self._bounds is None:
            low, high = (torch.as_tensor(bound) for bound in (self.action_map.low, self.action_map.high))
            self._bounds = low.to(actions), high.to(actions)
        low, high = self._bounds
        return low + (actions.reshape(-1, *low.shape) + 1.0) * ((high - low) / 2)

    def _flatten(self, obs: Any) -> torch.Tensor:
        """Returns a flat float32 copy (num_envs, obs_dim) of observations, as the simulator may reuse its memory."""
        columns = [reduce(getitem, path, obs) for path, _ in list_leaves(self.env.single_observation_space)]
        self._device = columns[0].device if isinstance(columns[0], torch.Tensor) else None
        flat = torch.cat([_to_tensor(column).reshape(self.num_envs, -1).float() for column in columns], dim=1)
        device = None if self.tensors_on is None else torch.empty(0, device=self.tensors_on).device
        self._stays = self._device is not None and self._device == device
        return flat if self._stays else flat.cpu()

    def _give(self, obs: torch.Tensor) -> Any:
        return obs if self._stays else obs.numpy()

    def _copy_to_host(self, actions: Any, obs: torch.Tensor, outcome: Any) -> tuple[np.ndarray, ...]:
        """Returns rewards (float64), terminated and truncated as arrays, in one copy from the device; raises RunError
        for an action or an observation that is not finite."""
        columns = [*map(_to_tensor, outcome), _is_finite(_to_tensor(actions)), _is_finite(obs)]
        on_host = torch.stack([values.to(obs.device).double() for values in columns]).cpu()
        rewards, terminated, truncated, finite_actions, finite_obs = on_host
        _require_finite("action", finite_actions)
        _require_finite("observation", finite_obs)
        return rewards.numpy(), terminated.numpy() != 0, truncated.numpy() != 0

    def call(self, name: str) -> tuple[Any, ...]:
        """Returns `action_map` or the state in a tuple, as Gymnasium's `call`, but once for all worlds."""
        return (self.action_map if name == "action_map" else self.state_dict(),)

    def state_dict(self) -> dict[str, Any]:
        """Returns how often all worlds restarted and, unless `cannot_restore`, the simulator's and its own state."""
        if self.cannot_restore:
            return {"starts": self._starts}
        state = _pack(self.env.unwrapped.state_dict())
        own = {"obs": self._obs.cpu(), "ended": self._ended, "cut_after": self._cut_after, "sums": self._sums}
        return {"starts": self._starts, "env": state, **_pack(own)}

    def _restore(self, state: dict[str, Any]) -> None:
        self._starts = state["starts"]
        self._begin()
        if self.cannot_restore:
            return
        self.env.unwrapped.load_state_dict(_unpack(state["env"]))
        self._starts = state["starts"]
        own = _unpack({key: state[key] for key in ("ended", "cut_after", "sums")})
        self._obs, self._sums = state["obs"].to(self._obs.device), own["sums"]
        self._ended, self._cut_after = own["ended"], own["cut_after"]

    def close(self) -> None:
        self.env.close()


class OneWorld(gym.Env):
    """Wraps a simulator of one world as an environment, for evaluations of one episode at a time."""

    def __init__(self, simulator: Simulator):
        self.simulator, self.action_map = simulator, simulator.action_map
        self.observation_space, self.action_space = simulator.single_observation_space, simulator.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.simulator.reset(seed=seed, options={"reset_mask": np.ones(1, bool)})[0][0], {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.simulator.step(action[None])
        of_one = {key: values[0] for key, values in info.items()}
        return obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), of_one

    def close(self) -> None:
        self.simulator.close()


def _find_numbers(info: Mapping[str, Any], key: str, num_envs: int) -> np.ndarray:
    """Returns a key's number in the info of every world, (num_envs,); nan where there is none."""
    values, there = _to_host(info.get(key, np.nan)), _to_host(info.get(f"_{key}", True))
    if values.dtype == object:  # Gymnasium's arrays of other objects than Python's numbers, such as NumPy's bools
        values = np.array([to_number(value) for value in values.flat], float)
    if values.dtype.kind not in "biuf" or (values.shape and values.size != num_envs):
        return np.full(num_envs, np.nan)
    return np.where(there, values.reshape(-1), np.nan) * np.ones(num_envs)


def _choose_rows(values: torch.Tensor, chosen: torch.Tensor, which: np.ndarray) -> torch.Tensor:
    """Returns rows of `chosen` where the mask is true, and of `values` elsewhere; both are (num_envs, width)."""
    return torch.where(torch.from_numpy(which).to(values.device, non_blocking=True)[:, None], chosen, values)


def _pack(state: Any) -> Any:
    """Replaces the arrays and NumPy numbers in a nested state, which a checkpoint cannot hold; `_unpack` undoes it."""
    if isinstance(state, dict):
        return {key: _pack(child) for key, child in state.items()}
    if isinstance(state, list | tuple):
        return [_pack(child) for child in state]
    if isinstance(state, np.ndarray) and state.dtype.kind in "biuf":
        return {ARRAY: torch.from_numpy(state.copy())}
    return state.item() if isinstance(state, np.generic) else state


def _unpack(state: Any) -> Any:
    """Returns a state as it was before `_pack`; its tuples are lists, and its NumPy numbers are Python's."""
    if isinstance(state, dict):
        return state[ARRAY].numpy() if ARRAY in state else {key: _unpack(child) for key, child in state.items()}
    return [_unpack(child) for child in state] if isinstance(state, list) else state


def _to_host(values: Any) -> np.ndarray:
    return _to_tensor(values).cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def _to_tensor(values: Any) -> torch.Tensor:
    return values.detach() if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))


def _is_finite(values: torch.Tensor) -> torch.Tensor:
    """Returns which rows of a tensor (N, width) are finite in float32, (N,)."""
    return (values.abs() <= FLOAT32_MAX).all(dim=1)


def _require_finite(what: str, finite: torch.Tensor) -> None:
    if not finite.all():
        raise RunError(f"{what}[{int(finite.byte().argmin())}] is not finite")
