"""Applies thirty single-line mistakes, one after another, and counts those that tests catch: `python tests/breaks.py`.

Arguments are numbers of mistakes, to try only these. Works on a git worktree of the last commit, in a temporary folder.
Exits with 1 if more than two are not caught, or if a text that a mistake replaces is not in the code exactly once.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
# Tests, and the mistakes that they catch: the text before (-) and after (+).
BREAKS = """
agent/test_losses.py agent/test_tqc.py agent/test_temperature.py agent/test_sac.py agent/test_sac_discrete.py
- torch.addcmul(reward, discount, next_value, value=gamma)
+ torch.addcmul(reward, discount, next_value)
- torch.where(delta.detach() < 0, 1 - tau[:, None], tau[:, None])
+ torch.where(delta.detach() > 0, 1 - tau[:, None], tau[:, None])
- return (alpha * log_prob - q).mean()
+ return (alpha * log_prob + q).mean()
- return multiplier * (entropy - target_entropy)
+ return multiplier * (target_entropy - entropy)
- (log_probs.exp() * (q - alpha * log_probs))
+ (log_probs.exp() * (q + alpha * log_probs))
agent/test_actor.py agent/test_averaging.py
- return grad_u, grad_u * scaled_noise - grad_log_prob, None
+ return grad_u, grad_u * scaled_noise, None
- self._num_updates.reciprocal().clamp_(min=self._share)
+ self._num_updates.reciprocal()
agent/test_td3.py agent/test_flash_sac.py
- self.critic_target.outputs(joint_obs, joint_action).chunk(2, dim=1)[1]
+ self.critic_target.outputs(joint_obs, joint_action).chunk(2, dim=1)[0]
- (self.actor_target(batch.next_obs).action + smoothing)
+ self.actor_target(batch.next_obs).action
agent/test_crossq.py agent/test_normalise.py agent/test_exploration.py
- self.running_var.lerp_(var.expand_as(self.running_var), 1 - self.momentum)
+ self.running_var.lerp_(var.expand_as(self.running_var), self.momentum)
- discount * np.where(ended, 0.0, before)
+ discount * before
- self._generator.set_state(state["generator"].cpu())
+ pass
test_utils.py settings/test_resolvers.py
- 1 - 5 * max(action_repeat, 1) / length
+ 1 - 5 / length
- torch._foreach_lerp_(self._target, self._net, tau)
+ torch._foreach_lerp_(self._target, self._net, 1 - tau)
test_train.py::test_no_transition_reaches_across_episodes test_train.py::test_the_critics_find_known_values
- seeding = progress.step < cfg.num_seed_steps
+ seeding = progress.step <= cfg.num_seed_steps
- rewards, next_obs, done, terminated, info.get(TAKEN)
+ rewards, next_obs, done, done, info.get(TAKEN)
run/test_progress.py run/test_info_keys.py
- math.floor(self.bursts * every *
+ math.floor(self.bursts *
- "episode_length": self.episode_length.tolist()
+ "episode_length": (0 * self.episode_length).tolist()
run/test_evaluations.py::test_the_best_policy_is_kept
- policy is not None and mean_return > self.best.mean_return
+ policy is not None and mean_return < self.best.mean_return
run/test_evaluator.py
- episode_seed(self._seed, EVAL_STREAM, step, episode)
+ episode_seed(self._seed, EVAL_STREAM, episode)
- returns += np.where(running, rewards, 0.0)
+ returns += rewards
replay/test_against_lists.py
- self._rewards[self._newest - k] + self._discount * total
+ self._rewards[self._newest - k] + total
- np.array([discount**k for k in range(n_step)])
+ np.array([discount ** (k + 1) for k in range(n_step)])
run/test_resume.py
- self.num_added, self._rng.bit_generator.state = state["num_added"], state["rng"]
+ self.num_added = state["num_added"]
replay/test_sampling.py replay/test_against_lists.py
- self._largest = max(self._largest, values.max())
+ self._largest = values.max()
- int(self._newest_row[place]) + 1)
+ int(self._newest_row[place]))
run/test_simulators.py
- ((self._cut_after == 1) & ~terminated)
+ (self._cut_after == 1)
test_train.py::test_each_environment_has_a_stream_of_its_own
- episode_seed(self._run_seed, TRAIN_STREAM, self._index, episode)
+ episode_seed(self._run_seed, TRAIN_STREAM, episode)
physics/test_tasks.py
- rewards += reward if everyone
+ rewards = reward if everyone
- min(self._repeat, self._limit - self._steps[index])
+ self._repeat
"""


def find(copy: Path, old: str) -> Path:
    """Returns the file outside tests that has a text once; raises ValueError unless there is exactly one."""
    files = subprocess.run(["git", "ls-files", "*.py", ":!tests"], cwd=copy, capture_output=True, text=True, check=True)
    (path,) = (copy / name for name in files.stdout.split() for _ in range((copy / name).read_text().count(old)))
    return path


def is_caught(copy: Path, tests: list[str], old: str, new: str) -> bool:
    path = find(copy, old)
    text = path.read_text()
    path.write_text(text.replace(old, new))
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", *tests]
    code = subprocess.run(command, cwd=copy, env=ONE_THREAD, capture_output=True, check=False).returncode
    path.write_text(text)
    print("caught" if code == 1 else f"NOT CAUGHT ({code})", path.relative_to(copy), new, flush=True)
    return code == 1


if __name__ == "__main__":
    breaks: list[tuple[list[str], str, str]] = []
    tests, old = [""], ""
    for line in BREAKS.strip().splitlines():
        if line.startswith("- "):
            old = line[2:]
        elif line.startswith("+ "):
            breaks.append((tests, old, line[2:]))
        else:
            tests = [f"tests/{name}" for name in line.split()]
    with tempfile.TemporaryDirectory() as temporary:
        git, copy = ["git", "-C", str(ROOT), "worktree"], Path(temporary, "copy")
        subprocess.run([*git, "add", "--quiet", "--detach", str(copy), "HEAD"], check=True)
        try:
            breaks = [breaks[int(number)] for number in sys.argv[1:]] or breaks
            caught = sum(is_caught(copy, *one) for one in breaks)
        finally:
            subprocess.run([*git, "remove", "--force", str(copy)], check=True)
    print(f"{caught} of {len(breaks)} caught")
    sys.exit(caught < len(breaks) - 2)
