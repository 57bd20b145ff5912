"""Runs from images with vectors, from stacks of vectors, and from groups of observations."""

import json
import runpy
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import probes
import pytest
import torch
from agents import TINY
from runs import RUN, assert_goes_on

import evaluate
import export
from agent.exported import inputs_of
from agent.policy import load_policy
from envs.make import ObsOptions, make_env
from replay import frames
from run.run_policy import load_run_policy
from utils import UserError

MIXED = ("env=probes:ProbeMixed-v0", "agent=drq", *TINY, "action_repeat=1", "frame_stack=2")
DEVICE = ("replay_storage=device", "n_step=3", "replay_buffer_capacity=60")


@pytest.mark.parametrize(
    "run",
    [
        (*MIXED, *DEVICE, "num_envs=2", "from_pixels=false", "execution=recorded"),
        pytest.param((*MIXED, "replay_buffer=prioritized"), marks=pytest.mark.thorough),
        pytest.param(("env=probes:ProbeDrawn-v0", "frame_stack=3", *DEVICE), marks=pytest.mark.thorough),
        ("env=probes:ProbePrivileged-v0", "obs_groups={actor: [place], critic: [place, goal]}", "num_envs=2"),
    ],
)
def test_killed_it_ends_in_the_same_bytes(tmp_path: Path, run: tuple[str, ...]) -> None:
    straight, _ = assert_goes_on(tmp_path, 101, *RUN, *run)
    assert isinstance(straight.replay_buffer, frames.FrameBuffer) == ("frame_stack" in str(run))
    assert straight.agent.num_updates > 100
    if "execution=recorded" in run:  # what cannot be traced would have run eagerly, to the same bytes
        assert straight.agent.execution._enabled and straight.agent.execution._recordings
        assert straight.agent.policy.choose.num_traced


def parts_of(env: Any, obs: np.ndarray) -> list[np.ndarray]:
    return [part[0] for part in env.observation_space.obs_spec.unpack(obs[None], np.float32)]


def test_an_observation_is_images_side_by_side_and_numbers_beside_them() -> None:
    env = make_env("ProbeMixed-v0", 1, pixels=ObsOptions(stack=2))
    first, _ = env.reset(seed=1)
    own = [env.unwrapped._obs()]  # type: ignore[attr-defined]
    second, *_ = env.step(np.zeros(1, np.float32))
    own = [own[0], own[0], env.unwrapped._obs()]  # type: ignore[attr-defined]
    for obs, stack in ((first, own[:2]), (second, own[1:])):
        image, vector = parts_of(env, obs)
        expected = [np.concatenate([o["camera"].transpose(2, 0, 1), o["depth"][None]]) for o in stack]
        np.testing.assert_array_equal(image, np.concatenate(expected))
        numbers = [[*o["speed"], *o["state"][0], o["state"][1] == 0, o["state"][1] == 1] for o in stack]
        np.testing.assert_array_equal(vector.reshape(-1, 2).T, np.array(numbers, np.float32))


def test_views_differ_in_their_images_alone(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, *RUN, *MIXED)
    run.run()
    agent, batch = run.agent, run.replay_buffer.sample(run.agent.batch_size)
    views = agent.observations.views(batch, agent.noise)
    (images, vectors), (shifted, repeated) = (
        agent.observations.spec.unpack(obs, torch.float32) for obs in (batch.obs, views.obs)
    )
    assert torch.equal(repeated, vectors.repeat(2, 1)) and not torch.equal(shifted, images.repeat(2, 1, 1, 1))
    features = agent.observations.features(batch.obs)
    for network in (agent.actor, agent.critic):
        assert torch.equal(network.inputs(batch.obs), network.inputs(features))
        assert torch.equal(network.inputs(batch.obs)[:, -vectors.shape[1] :], vectors)


def test_its_policy_is_evaluated_alone_and_cannot_be_recorded(tmp_path: Path) -> None:
    probes.train(tmp_path / "run", *RUN, *MIXED, "num_train_steps=60")
    packed = export.export(tmp_path / "run", "policy", trusted=("probes",))
    returns = [evaluate.evaluate(path, 2, trusted=("probes",)) for path in (packed, tmp_path / "run")]
    np.testing.assert_array_equal(*returns)
    with pytest.raises(UserError, match="--dataset: the environment gives images with vectors"):
        evaluate.evaluate(packed, 2, trusted=("probes",), dataset_id="probe/mixed-v0")


@pytest.mark.parametrize("stack", [1, 2])
def test_each_group_sees_its_own_keys(tmp_path: Path, stack: int) -> None:
    groups = {"actor": ["touch", "place"], "critic": ["goal", "place"]}
    env = make_env("ProbePrivileged-v0", 1, pixels=ObsOptions(stack=stack, groups=groups))
    obs, _ = env.reset(seed=1)
    own = env.unwrapped._obs()  # type: ignore[attr-defined]
    spec = env.observation_space.obs_spec  # type: ignore[attr-defined]
    seen = [obs[slice(*spec.seen(by_actor))] for by_actor in (True, False)]
    expected = [[*own["touch"], *own["place"]], [*own["place"], *own["goal"]]]
    for values, numbers in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(values, np.repeat(np.array(numbers, np.float32), stack))


def test_the_critic_learns_from_what_it_alone_sees_and_the_policy_needs_nothing_of_it(tmp_path: Path) -> None:
    """The reward comes from the goal, drawn anew each step: only a critic that sees it can tell the values apart."""
    also = (
        "agent/observation_normaliser=running",
        "agent.critic_lr=1e-2",
        "agent.discount=0",
        "agent.batch_size=64",
        "execution=recorded",
    )
    env = "env=probes:ProbePrivileged-v0"
    run = probes.train(tmp_path, *RUN, env, "obs_groups={actor: [place], critic: [place, goal]}", *also,
                       "num_train_steps=300", "eval_frequency=300")  # fmt: skip
    agent, batch = run.agent, run.replay_buffer.sample(256)
    q = agent.critic(agent.observation_normaliser(batch.obs), batch.action)[0].flatten()
    assert torch.corrcoef(torch.stack([q.detach(), batch.reward.flatten()]))[0, 1] > 0.9
    policy = load_policy(export.export(tmp_path, "policy", trusted=("probes",)))
    assert policy.act(np.zeros((5, 2), np.float32)).shape == (5, 1)
    obs = batch.obs.numpy()
    np.testing.assert_array_equal(policy.act(obs), policy.act(np.ascontiguousarray(obs[:, :2])))


def test_groups_of_a_suites_task_and_of_its_images_are_checked() -> None:
    def spec(name: str, actor: list[str], critic: list[str], **more: Any) -> Any:
        env = make_env(name, 1, pixels=ObsOptions(groups={"actor": actor, "critic": critic}, **more))
        return env.observation_space.obs_spec  # type: ignore[attr-defined]

    assert spec("finger_spin", ["position", "touch"], ["position", "touch", "velocity"]).groups == (6, 0)
    assert spec("ProbeMixed-v0", ["camera"], ["camera", "state"]).groups == (0, 0)
    without_images = spec("ProbeMixed-v0", ["state.0"], ["state", "speed"])
    assert (without_images.shape, without_images.groups) == ((5,), (1, 0))
    for name, actor, critic in (
        ("finger_spin", ["speed"], ["touch"]),
        ("ProbePrivileged-v0", ["place"], []),
        ("Pendulum-v1", ["x"], ["x"]),
        ("ProbeMixed-v0", ["camera", "speed"], ["speed"]),  # an image of one group alone
    ):
        with pytest.raises(UserError, match=r"obs_groups|one group alone"):
            spec(name, actor, critic)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (MIXED, [("image", [8, 9, 9], ["camera", "depth"]), ("vector", [10], ["speed", "state.0", "state.1"])]),
        pytest.param(
            ("env=finger_spin", "frame_stack=2", "obs_groups={actor: [touch, position], critic: [velocity, position]}"),
            [("obs", [12], ["touch", "position"])],
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_the_example_stacks_and_joins_what_the_exported_policy_takes(
    tmp_path: Path, run: tuple[str, ...], expected: list[Any]
) -> None:
    trained = probes.train(tmp_path, *RUN, *run, "num_train_steps=60", "num_eval_episodes=1")
    path = export.export(tmp_path, trusted=("probes",))
    example = runpy.run_path(str(Path(export.__file__).parent / "examples/deploy.py"))
    about, session = json.loads(path.with_name(f"{path.name}.json").read_text()), onnxruntime.InferenceSession(path)
    inputs = about["inputs"]
    assert [(each["name"], each["shape"][1:], each["keys"]) for each in inputs] == expected
    env = example["make_env"](trained.cfg.env, {}, [key for each in inputs for key in each["keys"]])
    policy = load_run_policy(tmp_path, "cpu", ("probes",))
    ours = policy.make_env(False)
    obs, _ = ours.reset(seed=7)
    theirs, _ = env.reset(seed=7)
    newest: deque[Any] = deque(maxlen=inputs[0]["frame_stack"])
    for step in range(4):
        newest.extend([theirs] * (1 if step else 9))
        policy_inputs = example["make_inputs"](inputs, env.observation_space, newest)
        ours_of = inputs_of(ours.observation_space.obs_spec, obs[None])  # type: ignore[attr-defined]
        for name, array in policy_inputs.items():
            np.testing.assert_allclose(array, ours_of[name], rtol=0, atol=1e-4)
        action = session.run(None, policy_inputs)[0][0]
        obs, *_ = ours.step(policy.actor.act(obs))
        theirs, *_ = env.step(action)
