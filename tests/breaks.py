"""Applies thirty single-line mistakes, one after another, and counts those that tests catch: `python tests/breaks.py`.

Works on a git worktree of the last commit, in a temporary folder. Exits with 1 if fewer than 28 are caught, or if a
text that a mistake replaces is not in its file exactly once.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
# A file and its tests; then for each mistake the text before (-) and after (+).
BREAKS = """
agent/losses.py agent/test_losses.py agent/test_temperature.py agent/test_sac.py agent/test_sac_discrete.py
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
agent/networks/distributions.py agent/test_actor.py
- return grad_u, grad_u * scaled_noise - grad_log_prob, None
+ return grad_u, grad_u * scaled_noise, None
agent/averaging.py agent/test_averaging.py
- self._num_updates.reciprocal().clamp_(min=self._share)
+ self._num_updates.reciprocal()
agent/crossq.py agent/test_flash_sac.py
- self.critic_target.outputs(joint_obs, joint_action).chunk(2, dim=1)[1]
+ self.critic_target.outputs(joint_obs, joint_action).chunk(2, dim=1)[0]
agent/td3.py agent/test_td3.py
- noise.normal(*batch.action.shape)).clamp(-clip, clip)
+ noise.normal(*batch.action.shape))
agent/networks/batch_norm.py agent/networks/test_batch_norm.py
- self.running_var.lerp_(var.expand_as(self.running_var), 1 - self.momentum)
+ self.running_var.lerp_(var.expand_as(self.running_var), self.momentum)
agent/normalise.py agent/test_normalise.py
- discount * np.where(ended, 0.0, before)
+ discount * before
agent/exploration.py agent/test_exploration.py
- self._generator.set_state(state["generator"].cpu())
+ pass
utils.py test_utils.py
- torch._foreach_lerp_(self._target, self._net, tau)
+ torch._foreach_lerp_(self._target, self._net, 1 - tau)
run/loop.py test_train.py::test_no_transition_reaches_across_episodes test_train.py::test_the_critics_find_known_values
- seeding = progress.step < cfg.num_seed_steps
+ seeding = progress.step <= cfg.num_seed_steps
- rewards, next_obs, done, terminated, info.get(TAKEN)
+ rewards, next_obs, done, done, info.get(TAKEN)
run/progress.py run/test_progress.py run/test_info_keys.py
- math.floor(self.bursts * every *
+ math.floor(self.bursts *
- "episode_length": self.episode_length.tolist()
+ "episode_length": (0 * self.episode_length).tolist()
- (score, mean_return) >
+ (mean_return, score) >
run/evaluation/evaluator.py run/test_evaluator.py
- episode_seed(self._seed, EVAL_STREAM, step, episode)
+ episode_seed(self._seed, EVAL_STREAM, episode)
- returns += np.where(running, rewards, 0.0)
+ returns += rewards
replay/n_step.py replay/test_n_step.py
- self._rewards[self._newest - k] + self._discount * total
+ self._rewards[self._newest - k] + total
- np.array([discount**k for k in range(n_step)])
+ np.array([discount ** (k + 1) for k in range(n_step)])
replay_buffer.py run/test_resume.py
- self.num_added, self._rng.bit_generator.state = state["num_added"], state["rng"]
+ self.num_added = state["num_added"]
replay/sampling.py replay/test_sampling.py
- self._largest = max(self._largest, values.max())
+ self._largest = values.max()
replay/frames.py replay/test_frames.py
- int(self._newest_row[place]) + 1)
+ int(self._newest_row[place]))
envs/simulator.py run/test_simulators.py
- ((self._cut_after == 1) & ~terminated)
+ (self._cut_after == 1)
envs/episodes.py test_train.py::test_each_environment_has_a_stream_of_its_own
- episode_seed(self._run_seed, TRAIN_STREAM, self._index, episode)
+ episode_seed(self._run_seed, TRAIN_STREAM, episode)
settings/resolvers.py settings/test_resolvers.py
- 1 - 5 * max(action_repeat, 1) / length
+ 1 - 5 / length
physics/worlds.py physics/test_tasks.py
- rewards += reward if everyone
+ rewards = reward if everyone
- min(self._repeat, self._limit - self._steps[index])
+ self._repeat
"""


def is_caught(copy: Path, file: str, tests: list[str], old: str, new: str) -> bool:
    text = (copy / file).read_text()
    (copy / file).write_text(text.replace(old, new))
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", *tests]
    code = subprocess.run(command, cwd=copy, env=ONE_THREAD, capture_output=True, check=False).returncode
    (copy / file).write_text(text)
    print("caught" if code == 1 else f"NOT CAUGHT ({code})", file, new, flush=True)
    return code == 1


if __name__ == "__main__":
    breaks: list[tuple[str, list[str], str, str]] = []
    file, tests, old = "", [""], ""
    for line in BREAKS.strip().splitlines():
        if line.startswith("- "):
            old = line[2:]
        elif line.startswith("+ "):
            breaks.append((file, tests, old, line[2:]))
        else:
            file, *tests = line.replace(" ", " tests/").split()
    with tempfile.TemporaryDirectory() as temporary:
        git, copy = ["git", "-C", str(ROOT), "worktree"], Path(temporary, "copy")
        subprocess.run([*git, "add", "--quiet", "--detach", str(copy), "HEAD"], check=True)
        try:
            if wrong := [f"{file}: {old}" for file, _, old, _ in breaks if (copy / file).read_text().count(old) != 1]:
                sys.exit("\n".join(["not in its file exactly once:", *wrong]))
            caught = sum(is_caught(copy, *one) for one in breaks)
        finally:
            subprocess.run([*git, "remove", "--force", str(copy)], check=True)
    print(f"{caught} of {len(breaks)} caught")
    sys.exit(caught < 28)
