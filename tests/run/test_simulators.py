"""The user's own simulators give the right rows, returns and logs in every mode, and are resumed or refused."""

from functools import partial
from pathlib import Path
from typing import Any

import composed
import numpy as np
import probes
import pytest
import torch
from counting import LENGTHS, CountingVec, OneCounting, reward_of, terminates
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from runs import RUN, assert_goes_on, go_on, rows, run_until

import evaluate
import export
from envs.episodes import EPISODE_INFO, make_vector_env
from envs.make import make_env
from envs.simulator import Simulator
from run.environments import make_train_envs
from run.loop import ROW_OF_EACH
from run.workspace import Workspace
from utils import RunError, UserError

GAMMA = 0.5
SMALL = (*RUN, "agent.discount=0.5", "num_envs=4", "num_eval_episodes=3", "min_buffer_size=30", "updates_per_step=0.2")
MODES = ["NextStep", "SameStep", "Disabled"]
KINDS = [(mode, "+env_kwargs.tensors=false") for mode in MODES]
KINDS += [(mode, tensors) for mode in MODES[1:] for tensors in ("+env_kwargs.tensors=true", "replay_storage=device")]


def counting(mode: str, *more: str, env: str = "Counting-v0") -> tuple[str, ...]:
    tensors = ("+env_kwargs.tensors=true",) if "replay_storage=device" in more else ()
    return f"env=counting:{env}", f"+env_kwargs.mode={mode}", *SMALL, *tensors, *more


def expected_row(world: int, episode: int, taken: int, n: int) -> tuple[float, list[float], float]:
    """Reward, next_obs and discount of the row that begins after `taken` steps of an episode."""
    length = LENGTHS[world % 4]
    stop = min(taken + n, length)
    reward = sum(GAMMA**k * reward_of(world, episode, taken + k + 1) for k in range(stop - taken))
    ends = stop == length and terminates(world, episode)
    return reward, [world, episode, stop], 0.0 if ends else GAMMA ** (stop - taken - 1)


def return_of(world: int, episode: int = 1) -> float:
    return sum(reward_of(world, episode, k + 1) for k in range(LENGTHS[world % 4]))


def stored(run: Workspace) -> dict[tuple[int, int, int], tuple[float, list[float], float]]:
    """The rows of a run, keyed by their obs: world, episode, steps."""
    buffer = run.replay_buffer
    batch = buffer.stored(0, buffer.num_added)
    keys = [tuple(int(value) for value in obs) for obs in batch.obs]
    assert len(set(keys)) == len(keys)
    values = zip(batch.reward[:, 0].tolist(), batch.next_obs.tolist(), batch.discount[:, 0].tolist(), strict=True)
    return dict(zip(keys, values, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "kind", "n"), [(*kind, 3 - 2 * (number % 2)) for number, kind in enumerate(KINDS)])
def test_every_row_has_the_observation_behind_it_and_bootstraps_unless_it_terminated(
    tmp_path: Path, mode: str, kind: str, n: int
) -> None:
    run = probes.train(tmp_path, *counting(mode, kind, f"n_step={n}"))
    found = stored(run)
    assert found == {key: expected_row(*key, n) for key in found}
    assert len(found) + run.n_step.num_pending == run.step == 160  # ignored steps are neither counted nor stored
    for world in range(4):
        begun = [key[1:] for key in found if key[0] == world]
        last = max(begun)
        assert begun == [(e, t) for e in range(1, last[0] + 1) for t in range(LENGTHS[world]) if (e, t) <= last]
    assert run.agent.num_updates == 0.2 * (160 - 40)  # even where some steps are ignored
    is_on_device = kind.startswith("replay_storage")
    assert (not run.replay_buffer.rows.any()) == is_on_device  # rows on the device never reach the host


@pytest.mark.parametrize("mode", MODES)
def test_an_evaluation_is_the_first_episode_of_every_world(tmp_path: Path, mode: str) -> None:
    run = probes.train(tmp_path, *counting(mode, "+info_keys.speed=sum"))
    returns = [return_of(i) for i in range(3)]
    evaluated = rows(tmp_path / "eval.csv")[-1]
    assert float(evaluated["episode_reward"]) == run.progress.last_return == np.mean(returns)
    assert float(evaluated["info_is_success"]) == np.mean([terminates(i, 1) for i in range(3)])
    assert float(evaluated["info_speed"]) == np.mean([sum(range(1, LENGTHS[i] + 1)) for i in range(3)])
    whole = [row for row in rows(tmp_path / "train.csv") if row["info_speed"]]
    by_length = {length: length * (length + 1) / 2 for length in LENGTHS}
    assert all(float(row["info_speed"]) == by_length[int(row["episode_length"])] for row in whole) and len(whole) > 30


def test_its_policy_is_evaluated_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes.train(tmp_path / "run", *counting("SameStep", "+info_keys.speed=sum"))
    returns = [return_of(i) for i in range(3)]
    assert evaluate.evaluate(tmp_path / "run", trusted=["counting"], film=tmp_path / "none.mp4") == returns
    said = capsys.readouterr().out
    assert "simulators of many worlds are never filmed" in said
    assert "is_success: mean 0.3333 over 3 episodes" in said
    assert export.export(tmp_path / "run", kind="policy", trusted=["counting"]).exists()


def test_with_a_single_environment_too_that_is_evaluated_and_one_is_trained_in(tmp_path: Path) -> None:
    both = "env=counting:BothCounting-v0", *SMALL, "num_train_steps=80", "replay_buffer_capacity=99"
    several, one = (probes.train(tmp_path / str(count), *both, f"num_envs={count}") for count in (4, 1))
    assert isinstance(several.envs, Simulator) and not isinstance(one.envs, Simulator)
    assert {world for world, *_ in stored(several)} == {0, 1, 2, 3}
    # Every episode is the first world's first.
    assert several.progress.last_return == one.progress.last_return == return_of(0)


def test_of_many_worlds_the_episodes_that_end_together_are_one_row_of_their_means(tmp_path: Path) -> None:
    num_envs = ROW_OF_EACH + 4
    few = f"num_envs={num_envs}", f"num_train_steps={7 * num_envs}", "eval_frequency=10_000", "checkpoint_frequency=0"
    probes.train(tmp_path, *counting("Disabled", *few))
    logged = rows(tmp_path / "train.csv")
    expected, done = [], 0
    for step in range(1, 8):
        ended = [i for i in range(num_envs) if step % LENGTHS[i % 4] == 0]
        episodes = [step // LENGTHS[i % 4] for i in ended]
        returns = [return_of(i, e) for i, e in zip(ended, episodes, strict=True)]
        done += len(ended)
        expected += [(done, np.mean(returns), np.mean([LENGTHS[i % 4] for i in ended]))] if ended else []
    got = [(int(row["episode"]), float(row["episode_reward"]), float(row["episode_length"])) for row in logged]
    assert len(logged) == len(expected) + 1  # and one row for the episodes that the run's end cut short
    np.testing.assert_allclose(got[:-1], expected, rtol=1e-6)


def test_the_preset_makes_two_updates_for_every_step_of_all_worlds(tmp_path: Path) -> None:
    few = "num_envs=8", "num_train_steps=400", "num_seed_steps=80", "agent.batch_size=16"
    small = *probes.SMALL[:5], *few, "preset=many_worlds", "replay_buffer_capacity=1000", "eval_frequency=1000"
    run = probes.train(tmp_path, *small, "env=counting:Counting-v0", "+env_kwargs.mode=SameStep")
    assert run.agent.num_updates == 2 * (400 - 80) // 8


@pytest.mark.parametrize(
    "kind",
    ["NextStep", *(pytest.param(mode, marks=pytest.mark.thorough) for mode in MODES[1:]), "replay_storage=device"],
)
def test_with_a_state_of_its_own_it_resumes_to_the_same_bytes(tmp_path: Path, kind: str) -> None:
    mode = kind if kind in MODES else "SameStep"
    sums = ("+info_keys.speed=sum", "+info_keys.obs=sum")
    own = counting(mode, "n_step=3", *sums, *([kind] if kind != mode else []), env="SavedCounting-v0")
    assert_goes_on(tmp_path, 77, *own)


def test_without_one_it_begins_new_episodes(tmp_path: Path) -> None:
    run_until(tmp_path, 77, *counting("NextStep", "n_step=3"))
    seeds: list[Any] = []
    reset = CountingVec.reset

    def noted(env: CountingVec, **how: Any) -> Any:
        result = reset(env, **how)
        env.episode += 10  # marks the episodes after the restart
        seeds.append(how.get("seed"))
        return env._obs(), result[1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CountingVec, "reset", noted)
        continued = go_on(tmp_path)
    assert len(set(seeds)) == len(seeds)
    found = stored(continued)
    assert found == {key: expected_row(*key, 3) for key in found}
    assert {key[1] > 10 for key in found} == {True, False}
    assert continued.step >= 160


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("action_repeat=2", "async_envs=true"), r"^async_envs=True, action_repeat=2: env=counting:Counting-v0, a sim"),
        (("from_pixels=true",), r"from_pixels"),
        (("frame_stack=3",), r"^frame_stack=3: "),
        (("env=counting:NoModeCounting-v0",), r"needs an AutoresetMode in its metadata .* has None"),
        (("+env_kwargs={wrong: 1}",), r"cannot be made with env_kwargs={'wrong': 1} .*unexpected keyword"),
    ],
)
def test_what_cannot_be_is_one_line(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_train_envs(composed.settings("env=counting:Counting-v0", "num_envs=4", *overrides))


def test_a_wrapper_of_vector_environments_goes_around_it(tmp_path: Path) -> None:
    wrapper = "env_wrappers=[{_target_: gymnasium.wrappers.vector.ClipReward, max_reward: 150}]"
    found = stored(probes.train(tmp_path, *counting("Disabled", wrapper)))
    assert max(reward for reward, *_ in found.values()) == 150


@pytest.mark.parametrize("mode", AutoresetMode)
def test_numbers_that_gymnasium_keeps_as_objects_or_in_columns_are_numbers(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([OneCounting] * 2, autoreset_mode=mode)
    simulator = Simulator(env, "counting", 1, {"is_success": "last", "speed": "sum", "missing": "sum"})
    simulator.reset(options={"reset_mask": np.ones(2, bool)})
    for _ in range(LENGTHS[0]):
        *_, info = simulator.step(np.zeros((2, 2), np.float32))
    assert [dict(pairs) for pairs in info[EPISODE_INFO]] == [{"is_success": 0.0, "speed": 3.0}] * 2
    simulator.close()


@pytest.mark.parametrize("what", ["action", "observation", "last"])
def test_tensors_that_are_not_finite_end_the_run(what: str) -> None:
    env = CountingVec(4, "SameStep", tensors=True)
    simulator = Simulator(env, "counting", 1)
    simulator.tensors_on = torch.device("cpu")
    simulator.reset(options={"reset_mask": np.ones(4, bool)})
    actions = torch.zeros(4, 2)
    simulator.step(actions)
    if what == "action":
        actions[2] = torch.nan
    elif what == "last":  # an episode's last obs, which only the info has
        names = torch.tensor([[0.0], [0], [np.nan], [0]]).repeat(1, 2)
        env._last = lambda done: {"steps": torch.zeros(4), "names": names}  # type: ignore
        simulator.step(actions)
        env.lengths[2] = 3
    else:
        env.taken = np.where(np.arange(4) == 2, np.nan, env.taken)
    with pytest.raises(RunError, match=rf"^{'action' if what == 'action' else 'observation'}\[2\] is not finite$"):
        simulator.step(actions)


@pytest.mark.parametrize("resumed", [False, True])
def test_first_episodes_are_cut_so_that_worlds_do_not_end_together(resumed: bool) -> None:
    env = CountingVec(400, "Disabled")
    env.lengths[:] = 50
    simulator = Simulator(env, "counting", 1, first_steps=50)
    saved = {"states": simulator.call("state_dict")} if resumed else {}  # CountingVec saves no episodes to go on with
    simulator.reset(options={"reset_mask": np.ones(400, bool), **saved})
    cut = []
    for _ in range(100):
        next_obs, _, terminated, truncated, _ = simulator.step(np.zeros((400, 2), np.float32))
        done = terminated | truncated
        cut.append(int(done.sum()))
        ends = np.array([terminates(int(world), int(episode)) for world, episode, _ in next_obs[done]], bool)
        assert (truncated[done] == (next_obs[done][:, 2] < 50) | ~ends).all()
        simulator.reset(options={"reset_mask": done})
    assert max(cut) < 30 and sum(cut) == 800  # two episodes end in each world


def test_so_are_those_of_single_environments_and_resumed_in_the_middle() -> None:
    def lengths(envs: Any, steps: int) -> list[list[int]]:
        ended: list[list[int]] = [[] for _ in range(8)]
        for step in range(steps):
            _, _, terminated, truncated, _ = envs.step(np.zeros((8, 1), np.float32))
            for index in np.flatnonzero(terminated | truncated):
                ended[index].append(step + 1)
            if (terminated | truncated).any():
                envs.reset(options={"reset_mask": terminated | truncated})
        return ended

    make, every = partial(make_env, "Pendulum-v1", 1, 2), {"reset_mask": np.ones(8, bool)}
    envs, again = (make_vector_env(make, 5, 8, False, first_steps=200) for _ in range(2))
    envs.reset(options=every)
    lengths(envs, 1)
    again.reset(options=every | {"states": envs.call("state_dict")})
    found, resumed = lengths(envs, 200), lengths(again, 200)
    assert found == resumed
    firsts = [ends[0] for ends in found]
    assert len(set(firsts)) > 4 and all(end <= 100 for end in firsts)
    assert all(second - first == 100 for first, second, *_ in found)
    for each in (envs, again):
        each.close()
