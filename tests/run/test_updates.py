"""When updates are made, and who acts before the first of them."""

from pathlib import Path

import probes
import pytest
from runs import quoted


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("num_train_steps=20",), 19),  # waits for one transition
        (("num_train_steps=30", "sample_with_replacement=false"), 30 - 16),  # waits for a batch
        (("num_train_steps=100", "min_buffer_size=60", "replay_buffer_capacity=20"), 40),
        (("num_train_steps=131", "min_buffer_size=50", "update_every=20"), 80),  # in bursts, from step 60 on
        (("num_train_steps=30", "num_seed_steps=20", "min_buffer_size=8"), 10),
        (("num_train_steps=30", "num_seed_steps=20", "min_buffer_size=8", "updates_while_seeding=true"), 22),
        # Decisions of two steps in episodes of five: three transitions each.
        (("num_train_steps=120", "num_seed_steps=40", "action_repeat=2", "updates_per_step=3"), 144),
        (("num_train_steps=120", "num_seed_steps=40", "action_repeat=2", "updates_per_step=0.25"), 12),
    ],
)
def test_how_many_updates_are_made(tmp_path: Path, overrides: tuple[str, ...], expected: int) -> None:
    run = probes.train(tmp_path, "env=ProbeTimeLimit-v0", "num_seed_steps=0", *overrides)
    assert run.agent.num_updates == pytest.approx(expected, abs=1 if "action_repeat=2" in overrides else 0)


@pytest.mark.parametrize("policy", ["uniform", "agent", "saved"])
def test_who_acts_first(tmp_path: Path, policy: str) -> None:
    first = probes.workspace(tmp_path / "first", "env=ProbeTimeLimit-v0")
    for layer in first.agent.actor.parameters():
        layer.data.fill_(1.0)  # drives every action to the upper bound
    first.agent.save_policy(tmp_path / "policy.pt")
    chosen = quoted(tmp_path / "policy.pt") if policy == "saved" else policy
    run = probes.train(tmp_path / "run", "env=ProbeTimeLimit-v0", "num_train_steps=100", f"seed_policy={chosen}")
    actions = run.replay_buffer.rows[:100, 1]
    # Uniform actions have a standard deviation of 1 / sqrt(3); those of a fresh policy spread less.
    assert (abs(actions.std() - 3**-0.5) < 0.06) == (policy == "uniform")
    assert (actions.min() > 0.5) == (policy == "saved")
