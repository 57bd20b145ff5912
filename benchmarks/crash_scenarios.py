"""Lists what the crash test kills: trainings, sweeps, and commands that write files."""

from dataclasses import dataclass

SMALL = [
    *("device=cpu", "num_threads=1", "save_video=false", "save_figure=false", "num_eval_episodes=2"),
    *("agent.batch_size=16", "agent.critic.hidden_dim=16", "agent.actor.hidden_dim=16"),
    *("num_seed_steps=100", "num_train_steps=600", "eval_frequency=250", "checkpoint_frequency=13"),
]
PENDULUM = "env=Pendulum-v1"  # episodes of 200 steps
TRAININGS: dict[str, list[str]] = {  # name: overrides
    "sac": [PENDULUM, "log_frequency=200", "log_every_steps=50"],
    "sac_v": [PENDULUM, "agent=sac_v", "agent.value.hidden_dim=16"],
    "sac_2018": [PENDULUM, "agent=sac_2018", "agent.value.hidden_dim=16", "save_replay_buffer=true"],
    "crossq": [PENDULUM, "agent=crossq", "agent.critic.network.norm.renorm_after=200"],
    "flash_sac": [PENDULUM, "agent=flash_sac"],
    "td3": [PENDULUM, "agent=td3"],
    "droq": [PENDULUM, "agent=droq", "updates_per_step=1", "agent.actor_update_frequency=3"],
    "four_envs": [PENDULUM, "num_envs=4", "checkpoint_frequency=30"],
    "four_processes": [PENDULUM, "num_envs=4", "async_envs=true", "checkpoint_frequency=30"],
    "ring": [PENDULUM, "replay_buffer_capacity=170", "sample_with_replacement=false", "update_every=7"],
    "prioritized": [PENDULUM, "replay_buffer=prioritized", "replay_buffer_capacity=170", "num_envs=2"],
    "discrete": ["env=CartPole-v1", "agent=sac_discrete", "n_step=3", "num_envs=2", "checkpoint_frequency=30"],
    "stacked": [PENDULUM, "frame_stack=3", "n_step=2", "replay_buffer_capacity=170"],
    "followers": [
        *(PENDULUM, "num_envs=3", "n_step=3", "agent/observation_normaliser=running", "checkpoint_frequency=30"),
        *("agent/reward_normaliser=returns", "agent/exploration=held", "agent.critic_weight_decay=0.01"),
    ],
    "cartpole_balance": ["env=cartpole_balance", "num_train_steps=1100", "num_eval_episodes=1"],
    "pixels": [
        *(PENDULUM, "agent=drq", "image_size=16", "image_pad=2", "replay_buffer_capacity=150", "n_step=2"),
        *("agent.encoder.strides=[2,1]", "agent.encoder.channels=4", "log_frequency=200", "action_repeat=4"),
    ],
    "background": [PENDULUM, "num_train_steps=900", "eval_in_background=true"],
    "worlds": [
        "env=cartpole_swingup",
        "num_envs=3",
        "num_train_steps=3300",
        "checkpoint_frequency=130",
        "stagger_steps=300",
    ],
    "reacher_easy": ["env=reacher_easy", "num_train_steps=1100", "action_repeat=2", "num_eval_episodes=1"],
}


@dataclass(frozen=True)
class Command:
    """A command that writes files.

    Args:
        program: script in the repository's root.
        arguments: its arguments; `{run}` stands for a finished run, `{folder}` for the folder that holds the run.
        together: a folder, relative to `{folder}`, whose files must all appear at once.
        is_repeatable: whether the command may be repeated when its files already exist.
    """

    program: str
    arguments: tuple[str, ...]
    together: str | None = None
    is_repeatable: bool = True


COMMANDS = {
    "recording": Command(
        # The file of the namespace `crash` appears before the data set; alone it does not stop a repetition.
        "evaluate.py",
        ("{run}", "--episodes=5", "--no-video", "--dataset=crash/test-v0"),
        "datasets/crash/test-v0",
        False,
    ),
    "film": Command("evaluate.py", ("{run}", "--episodes=1")),
    "figure": Command("plot.py", ("{run}",)),
    "study": Command("plot.py", ("{run}", "{run}_2", "--out={folder}/study")),
    "report": Command("plot.py", ("{run}", "--report")),
    "onnx": Command("export.py", ("{run}",)),
    "torchscript": Command("export.py", ("{run}", "--format=torchscript")),
    "policy": Command("export.py", ("{run}", "--format=policy")),
}
SWEEPS = {
    "sweep": [PENDULUM, "num_train_steps=300", "eval_frequency=150", "seed=1,2,3"],
    "sweep_at_once": [PENDULUM, "num_train_steps=300", "seed=1,2", "hydra/launcher=this_machine", "n_step=2"],
}
