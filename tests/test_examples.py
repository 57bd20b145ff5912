import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import probes
import pytest
import torch

from envs.make import make_env

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        ("env=walker_walk resume=auto", "preset=fast"),
        ("agent=td3", ""),
        ("preset=cpu", ""),
        ("resume=exp/day/run", ""),
    ],
)
def test_make_train_adds_what_two_cores_can_learn(arguments: str, added: str) -> None:
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    for has_gpu in (0, 1):
        command = ["make", "-n", "train", f"ARGS={arguments}", f"HAS_GPU={has_gpu}"]
        output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=alone, check=True).stdout
        words = output.splitlines()[-1].split("train.py", 1)[1].split()
        assert words == [*([] if has_gpu else added.split()), *arguments.split()]


@pytest.mark.parametrize(
    ("env", "num_threads", "num_steps", "hidden_dim", "batch_size"),
    [
        ("ProbeDrawn-v0", 1, 220, 32, 24),  # episodes that terminate
        ("Pendulum-v1", 1, 250, 32, 24),  # episodes that a time limit truncates
        ("walker_walk", 2, 105, 128, 64),  # |A| = 6
    ],
)
def test_sac_on_one_page_trains_to_the_bytes_of_the_framework(
    env: str, num_threads: int, num_steps: int, hidden_dim: int, batch_size: int, tmp_path: Path
) -> None:
    # From 2^21 multiplications on, some processors use another library (agent/networks/mlp.py).
    assert batch_size * hidden_dim**2 < 2**21
    theirs = probes.train(
        tmp_path,
        *(f"env={env}", "seed=3", f"num_train_steps={num_steps}", f"num_threads={num_threads}", "num_eval_episodes=1"),
        *("num_seed_steps=100", "replay_buffer_capacity=150", f"agent.batch_size={batch_size}"),
        *(f"agent.{network}.hidden_dim={hidden_dim}" for network in ("actor", "critic")),
        *(f"agent.{network}_lr=1e-3" for network in ("actor", "critic", "alpha")),
        "agent.critic_target_update_frequency=1",
    )
    page = runpy.run_path(str(ROOT / "examples/sac_on_one_page.py"))
    sizes = {"seed_steps": 100, "capacity": 150, "batch_size": batch_size, "hidden_dim": hidden_dim}
    *networks, log_alpha = page["train"](make_env(env, 3), 3, num_steps, **sizes, lr=1e-3)
    agent = theirs.agent
    modules = agent.actor, agent.critic, agent.critic_target, agent.temperature
    for weights, module in zip([*networks, [log_alpha]], modules, strict=True):
        for weight, parameter in zip(weights, module.parameters(), strict=True):
            assert torch.equal(weight.flatten(), parameter.flatten())
    torch.set_num_threads(1)  # as in the framework's evaluation
    assert page["evaluate"](networks[0], make_env(env, 3), 3, num_steps, episodes=1) == theirs.progress.last_return


def test_sac_on_one_page_imports_the_environments_alone() -> None:
    tree = ast.parse((ROOT / "examples/sac_on_one_page.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {getattr(node, "module", None) or alias.name for node in imports for alias in node.names}
    assert {name for name in modules if (ROOT / name.split(".")[0]).exists()} == {"envs.make"}
    assert {name.split(".")[0] for name in modules} - {"envs", "numpy", "torch"} <= set(sys.stdlib_module_names)
