"""Dozens of wrong command lines: each gives one line on standard error and exit code 2, and creates nothing."""

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from composed import settings
from runs import ROOT

from launch import command, job
from utils import UserError

P = "env=Pendulum-v1 save_video=false"  # quick to build
LINEAR = "{_target_: agent.schedule.Linear, start: 1, final: 2, steps: 3}"

NODES = [  # a node where a plain value belongs
    (f"{P} 'agent.batch_size={LINEAR}'", "agent.batch_size={'_target_'"),
    (f"{P} 'agent.actor_update_frequency={LINEAR}'", "agent.actor_update_frequency={'_target_'"),
    (f"{P} 'agent.critic_target_update_frequency={LINEAR}'", "a plain value goes here"),
    (f"{P} 'agent.critic.hidden_dim={LINEAR}'", "a plain value goes here"),
    (f"{P} 'agent.actor.log_std_bounds={LINEAR}'", "agent.actor.log_std_bounds: Cannot merge"),
    (f"{P} 'agent.critic_betas={LINEAR}'", "agent.critic_betas: Cannot merge"),
    (f"{P} 'agent.learnable_temperature={LINEAR}'", "a plain value goes here"),
    (f"{P} 'agent.num_target_critics={LINEAR}'", "a plain value goes here"),
    (f"{P} 'agent.actor_q={LINEAR}'", "a plain value goes here"),
    (f"{P} 'num_eval_episodes={LINEAR}'", "num_eval_episodes={'_target_'"),
    (f"{P} 'num_train_steps={LINEAR}'", "a plain value goes here"),
    (f"{P} 'updates_per_step={LINEAR}'", "a plain value goes here"),
    (f"{P} 'seed={LINEAR}'", "a plain value goes here"),
    (f"'env={LINEAR}'", "a plain value goes here"),
    (f"{P} 'experiment={LINEAR}'", "a plain value goes here"),
    (f"{P} 'save_video={LINEAR}'", "a plain value goes here"),
    (f"{P} 'precision={LINEAR}'", "a plain value goes here"),
    (f"{P} 'num_threads={LINEAR}'", "a plain value goes here"),
    (f"{P} 'agent.batch_size=[{LINEAR}]'", "agent.batch_size"),
    (f"{P} 'agent.critic_betas=[0.9,{LINEAR}]'", "agent.critic_betas"),
    (f"{P} 'agent.batch_size={{a: 1}}'", "agent.batch_size"),
    (f"{P} 'agent.critic_tau={LINEAR}'", "less than or equal to 1"),  # the schedule gives 2 at step 3
    (f"{P} 'agent.discount={{_target_: agent.schedule.Exponential, start: 0.9, final: 3, decay: 9}}'", "equal to 1"),
    (f"{P} 'agent.critic_lr={{_target_: agent.schedule.Piecewise, points: [[0, 1], [5, -1], [9, 1]]}}'", "equal to 0"),
    (f"{P} 'reward_scale={{_target_: agent.critic.ValueNetwork}}'", "reward_scale"),
    (f"{P} 'reward_scale={{_target_: utils.Every, frequency: 3}}'", "a number goes here"),
    (f"{P} 'reward_scale={{_target_: utils.UserError}}'", "reward_scale"),
    (f"{P} 'reward_scale={{_target_: agent.schedule.Linear, _partial_: true, start: 1}}'", "reward_scale"),
]


def part(name: str, **keys: object) -> str:
    return f"{{_target_: {name}, _partial_: true{''.join(f', {key}: {value}' for key, value in keys.items())}}}"


N = "agent.networks"
LINEAR_PART = part("agent.schedule.Linear", start=1, final=2, steps=3)
ACTOR = part("agent.actor.DiagGaussianActor", hidden_dim=8, hidden_depth=2, log_std_bounds="[-5,2]")
VALUE = part("agent.critic.ValueNetwork", hidden_dim=8, hidden_depth=2)
PARTS = [  # existing classes where another kind of class belongs
    (f"{P} '{key}={node}'", f"{key}{named}: {said}" if said else key)
    for key, node, named, said in (
        ("agent.critic.network", part(f"{N}.BatchNorm"), f"._target_={N}.BatchNorm", "a network goes here, and this"),
        ("agent.critic.network", "{_target_: agent.networks.BatchNorm}", "", "the code completes this node"),
        ("agent.actor.network", LINEAR_PART, "._target_=agent.schedule.Linear", "a network goes here"),
        ("agent.critic.network", part(f"{N}.ScalarHead"), f"._target_={N}.ScalarHead", "a network goes here"),
        ("agent.critic.network", part(f"{N}.mlp"), f"._target_={N}.mlp", "a network goes here, and this does not take"),
        (
            "agent.critic.head",
            LINEAR_PART,
            "._target_=agent.schedule.Linear",
            "a head goes here, and this has no values",
        ),
        ("agent.critic.head", part(f"{N}.NormedMLP"), f"._target_={N}.NormedMLP", "a head goes here"),
        ("agent.temperature", LINEAR_PART, "._target_=agent.schedule.Linear", "a temperature goes here"),
        (
            "agent.critic",
            ACTOR,
            "._target_=agent.actor.DiagGaussianActor",
            "a critic goes here, and this has no outputs",
        ),
        ("agent.critic", VALUE, "._target_=agent.critic.ValueNetwork", "a critic goes here"),
        ("agent.actor", VALUE, "._target_=agent.critic.ValueNetwork", "an actor goes here"),
        ("agent.critic.network.block", "null", "", ""),
        ("agent.temperature", "null", "", ""),
        ("logger.sinks.csv", part(f"{N}.BatchNorm"), f"._target_={N}.BatchNorm", "a sink goes here"),
        (
            "logger",
            part("run.evaluation.evaluator.Evaluator"),
            "._target_=run.evaluation.evaluator.Evaluator",
            "a logger goes here",
        ),
        ("evaluator", part("logger.Logger"), "._target_=logger.Logger", "an evaluator goes here"),
        ("agent._target_", "logger.Logger", "=logger.Logger", "an agent goes here"),
        *(
            (f"agent.{key}", part(name), f"._target_={name}", said)
            for key, name, said in (
                ("observation_normaliser", "agent.exploration.HeldNoise", "a normaliser of observations goes here"),
                ("reward_normaliser", "agent.exploration.HeldNoise", "a normaliser of rewards goes here"),
                ("exploration", "agent.normalise.RewardNormaliser", "exploration noise goes here, and this has no"),
            )
        ),
    )
]

PARTS += [
    (
        f"{P} agent=tqc agent.critic.head._target_={N}.CategoricalHead",
        f"{N}.CategoricalHead has bounds, loss_weight, num_bins; agent.critic.head=",
    ),
    (f"{P} agent=sac_v 'agent.value={ACTOR}'", "a value network goes here, and this needs action_dim"),
]

MISSING = [  # keys that every run needs
    ("'~env'", "~env: a run needs this key; set it, env=<value>"),
    (f"{P} '~agent'", "~agent: a run needs this key"),
    (f"{P} '~eval_sample'", "~eval_sample: a run needs this key"),
    (f"{P} '~agent._target_'", "agent._target_ is missing; it names the class"),
    (f"{P} 'agent.actor._partial_={{a: 1}}'", "agent.actor: the code completes this node"),
    (f"{P} agent.critic=null", "agent.critic=null: a group of keys goes here"),
    (f"{P} '~agent.critic.network'", "~agent.critic.network: it is null already; leave it out"),
    (f"{P} '~agent.critc'", "~agent.critc: unknown key; did you mean agent.critic"),
    (f"{P} seed=???", "seed=???: a value goes here"),
    (f"{P} agent=???", "agent=???: a value goes here"),
    (f"{P} hydra.run=???", "hydra.run=???: a value goes here"),
]

BUILT = [  # mistakes found when the parts are built
    (f"{P} '{key}={node}'", f"{key}{named}: {said}")
    for key, node, named, said in (
        ("agent.actor.network", part(f"{N}.PreNormBlock", norm=part(f"{N}.RMSNorm")), "=PreNormBlock", "a network"),
        ("agent.critic.network", part(f"{N}.PreNormBlock", norm=part(f"{N}.RMSNorm")), "=PreNormBlock", "a network"),
        ("agent.critic.network", part(f"{N}.Residual", block=part(f"{N}.NormedMLP")), "=Residual", "a network goes"),
        ("replay_buffer", part(f"{N}.BatchNorm"), f"._target_={N}.BatchNorm", "it has to take obs_shape"),
    )
]
BUILT += [
    (f"{P} 'agent.actor={part('agent.critic.CriticEnsemble', hidden_dim=8, hidden_depth=2)}'", "it cannot be built ("),
    (f"{P} device=tpu", "device"),
    (f"{P} device=meta", "device"),
]

SHAPES = [  # mostly sizes for which no machine has the memory or the time
    (f"{P} agent.critic.hidden_dim=10000000", "bytes"),
    (f"{P} agent.actor.hidden_dim=10000000", "bytes"),
    (f"{P} agent.critic.hidden_depth=100000", "agent.critic.hidden_depth=100000"),
    (f"{P} agent.actor.hidden_depth=100000", "agent.actor.hidden_depth=100000"),
    (
        f"{P} agent.critic.num_critics=10000000",
        "agent.critic.num_critics=10000000: it should be less than or equal to 1000",
    ),
    (f"{P} agent.batch_size=100000000000", "agent.batch_size=100000000000"),
    (f"{P} agent=td3 agent.batch_size=100000000000", "agent.batch_size=100000000000"),
    (f"{P} agent=sac_v agent.value.hidden_dim=10000000", "bytes"),
    (f"{P} agent=simba agent.critic.hidden_dim=10000000", "bytes"),
    (f"{P} agent=xqc action_repeat=often", "action_repeat=often: an integer goes here"),
    (
        f"{P} agent=flash_sac agent.actor_update_frequency=x",
        "agent.actor_update_frequency=x: an integer goes here",
    ),
    (f"{P} agent=tqc agent.critic.head.num_quantiles=1000000000", "bytes"),
    (f"{P} num_envs=100000", "num_envs=100000"),
    (f"{P} num_envs=100000 async_envs=true", "num_envs=100000"),
    (f"{P} physics=batched", "physics=batched: it serves tasks of the Control Suite (env=Pendulum-v1); choose auto"),
    ("env=cheetah_run physics=batched async_envs=true", "physics=batched: async_envs=true wants a process for each"),
    (f"{P} updates_per_step=1e9", "updates_per_step=1000000000"),
    (f"{P} num_threads=100000", "num_threads=100000"),
    (f"{P} num_eval_episodes=1000000000", "num_eval_episodes"),
]

PRESETS = [  # presets that do not fit the agent; the message says who set the key
    (f"{P} preset=cpu agent=td3", "preset=cpu: it sets agent.alpha_lr, which agent=td3 does not have"),
    (f"{P} preset=fast agent=td3", "preset=fast: it sets agent.target_entropy_per_dim, which agent=td3"),
    (
        f"{P} preset=strong agent=tqc",
        "ScalarHead, which does not have agent=tqc's num_quantiles; choose another preset",
    ),
    (f"{P} preset=[cpu,tune] agent=td3", "preset=cpu: it sets agent.alpha_lr"),
    (f"{P} preset=cpu agent=td3 agent.alpha_lr=1", "agent.alpha_lr"),
    ("preset=lunar_lander agent=td3", "In 'preset/lunar_lander'"),
    (f"-m {P} preset=cpu agent=sac,td3", "preset=cpu: it sets agent.alpha_lr, which agent=td3 does not have"),
]

ENVIRONMENTS = [  # those that cannot be built, and keys that do not fit them; Probe…: tests/helpers/probes.py
    ("env=ProbeNeedsSize-v0", "missing 1 required positional argument: 'size'"),
    ("env=ProbeNeedsSize-v0", "gives arguments"),
    ("env=ProbeUnbuildable-v0", "it cannot be built (ZeroDivisionError in "),
    ("env=ProbeImages-v0", "agent.encoder=null: the observations are images (9, 8, 10); choose agent=drq"),
    ("env=ProbeMixed-v0", "agent.encoder=null: the observations are images (12, 9, 9); choose agent=drq"),
    (
        "env=ProbePrivileged-v0 'obs_groups={actor: [place], critic: [speed]}'",
        "obs_groups.critic=['speed']: keys of env=",
    ),
    ("env=ProbePrivileged-v0 'obs_groups={actor: [place]}'", "obs_groups.critic"),
    ("env=Pendulum-v1 action_bounds=3", "action_bounds=3.0: the environment sets all bounds itself: Box(-2.0, 2.0"),
    (
        "env=ProbeTuples-v0 action_bounds=[1,2,3]",
        "action_bounds=[1.0, 2.0, 3.0]: one number, or as many as the actions have",
    ),
    ("env=ProbeTuples-v0 action_bounds=-1", "action_bounds"),
    ("obs_groups=[position]", "obs_groups=['position']"),
    ("agent=drq env=Pendulum-v1 from_pixels=false", "this environment gives vectors; from_pixels=true renders it"),
    ("agent=drq env=ProbeFaulty-v0", "from_pixels=true: env=ProbeFaulty-v0: its reset raised"),
    ("agent=drq env=Pendulum-v1 image_size=8", "leave nothing of images of 8 x 8 pixels"),
    ("agent=drq env=Pendulum-v1 image_size=4", "image_size=4: it should be greater than or equal to 8"),
    ("agent=drq env=Pendulum-v1 frame_stack=0", "frame_stack=0: it should be greater than or equal to 1"),
    ("camera_id=-1", "camera_id=-1"),
    ("agent=drq env=Pendulum-v1 agent/observation_normaliser=running", "it is for vectors, and these are images"),
    ("agent=drq env=Pendulum-v1 replay_buffer_capacity=100_000_000_000", "for frames of 84x84 pixels"),
    ("env=no_such_package:Env-v0", "PYTHONPATH=/path/to/folder"),
]

OVERRIDES = [  # wrong overrides and options, whether or not Hydra can read them
    ("=3", "=3: an override reads key=value"),
    ("= 3", "reads key=value"),
    ("==", "reads key=value"),
    ("", "reads key=value"),
    ("seed=[1", "reads key=value"),
    ("'seed=1 2'", "seed=1 2"),
    ("seed==1", "seed"),
    ("'env=a b(c'", "env=a b(c"),
    ("env=チーター", "quote"),
    ("\"env='チーター'\"", "no such task"),
    ("experiment=ü", "quote"),
    ("agent=null", "agent=null: the name of a choice goes here; there are "),
    ("agent=", "agent=: "),
    ("agent=3", "agent=3: the name of a choice goes here"),
    ("agent._target_=os.system", "an agent goes here, and this does not take obs_dim"),
    ("agent._target_=builtins.max", "cannot be called from here"),
    ("agent=[sac,td3]", "agent="),
    ("preset=3", "preset=3"),
    ("preset=[cpu,null]", "preset=[cpu,null]: the name of a choice goes here; there are cartpole, cpu,"),
    ("preset=[[cpu]]", "preset=[[cpu]]: the name of a choice goes here"),
    ("preset=[cpu,3]", "preset=[cpu,3]: the name of a choice goes here"),
    ("~seed", "~seed: a run needs this key; set it, seed=<value>"),
    ("seed", "seed: an override reads key=value, without spaces around ="),
    ("+agent=sac", "agent"),
    ("++preset.a=3", "preset"),
    ("agent.critic.network=residual", "a group of keys goes here"),
    (f"{P} -m seed=1,2", "options go before the first key=value, or after the last"),
    ("hydra.nope=3", "hydra.nope"),
    ("hydra/launcher=nope", "no such choice"),
    ("hydra/sweeper=nope", "no such choice"),
    ("hydra.mode=TURBO", "hydra.mode"),
    ("--config-name=nope", "--config-name=nope: no such choice"),
    ("-cn nope", "nope"),
    ("--config-dir /no/such", "--config-dir=/no/such"),
    ("--config-dir", "--config-dir"),
    ("--config-path /no/such", "--config-path"),
    (
        "--experimental-rerun given/.hydra/config.pickle",
        "--experimental-rerun=given/.hydra/config.pickle: it would run",
    ),
    ("--cfg nope", "--cfg"),
    ("--no-such-flag", "--no-such-flag"),
    ("--shell-completion", "--shell-completion"),
    ("--config-dir=", "--config-dir=: there is no such folder"),
    ("--config-name=", "--config-name=: the name of a configuration goes here"),
    ("--run --multirun", "--run --multirun: only one of them at a time"),
    ("--package nope", "--package: it goes with --cfg"),
    ("--resolve", "--resolve: it goes with --cfg"),
    ("hydra.searchpath=[/no/such]", "hydra.searchpath=/no/such: there is no such folder"),
    ("--info nope", "--info"),
    ("seed=1,2", "seed=1,2: a sweep needs -m; a list is written seed=[1,2]"),
    ("--env cheetah_run", "keys have no dashes: env="),
    ("log_save_tb=ture", "log_save_tb=ture: true or false goes here"),
    ("resume=true", "resume=true: a run's folder goes here, or auto"),
    ("resume=", "a run's folder goes here"),
    ("resume=a resume=b", "a run's folder goes here"),
    ("resume=/no/such", "no run's folder"),
    ("resume=. -m", "not with resume=<folder>"),
    ("resume=auto", "name the folder to look into"),
    ("resume=auto hydra.run.dir=x batch_size=3", "did you mean agent.batch_size"),
    ("resume=auto hydra.run.dir= env=Pendulum-v1", "hydra.run.dir="),
]

FOLDERS = [
    (f"{P} hydra.run.dir=", "hydra.run.dir=: the name of a folder goes here"),
    (f"{P} 'hydra.run.dir=\"\"'", "hydra.run.dir=: the name of a folder goes here"),
    (f"{P} hydra.run.dir=null", "hydra.run.dir"),
    (f"{P} 'hydra.run.dir=${{nope}}'", "hydra.run.dir: Interpolation key 'nope' not found\n"),
    (f"-m {P} seed=1,2 hydra.sweep.subdir=", "hydra.sweep.subdir=: each run needs a folder of its own"),
    (f"{P} {shlex.quote(f'hydra.run.dir={ROOT}')}", "this project's own folder"),
    (f"{P} hydra.run.dir=/proc/sys/vm", "cannot be created or written"),
    (f"{P} hydra.run.dir=/dev/null/x", "cannot be created"),
    (f"{P} hydra.run.dir=/proc/x", "cannot be created"),
    (f"-m {P} seed=1,2 hydra.sweep.dir=", "hydra.sweep.dir=: the name of a folder goes here"),
    (f"-m {P} seed=1,2 hydra.sweep.dir=/proc/x", "cannot be created"),
]

SWEEPS = [
    (f"-m {P} 'agent=glob(y*)'", "agent=glob(y*)"),
    (f"-m {P} 'agent=glob(t*)' agent.alpha_lr=1e-3", "agent.alpha_lr"),
    ("-m 'seed=interval(1,2)'", "INTERVAL_SWEEP"),
    ("-m 'seed=range(1,x)'", "seed=range(1,x)"),
    ("-m 'seed=choice()'", "seed=choice()"),
    ("-m seed=1,,2", "seed=1,,2"),
    (f"-m {P} seed=1,-2", "seed=-2"),
    (f"-m {P} seed=1,2 hydra.run.dir=x", "hydra.run.dir: it is for a single run"),
    (f"-m {P} seed=1,2 hydra.sweeper.max_batch_size=0", "hydra.sweeper.max_batch_size=0: null, or the most runs"),
    (f"-m {P} seed=1,2 hydra/launcher=this_machine hydra.launcher.n_jobs=0", "hydra.launcher.n_jobs=0: the number of"),
    (f"{P} hydra/launcher=slurm", "hydra/launcher: it is for a sweep, which -m starts"),
    (f"{P} hydra.sweep.dir=x", "hydra.sweep.dir: it is for a sweep, which -m starts"),
    (f"-m 'num_train_steps=10,{LINEAR}'", "num_train_steps={"),
    ("-m env=Pendulum-v1,nope", "env=nope"),
    ("-m agent=sac,sca", "agent=sca"),
    (f"-m {P} agent.critic.hidden_dim=8,10000000", "bytes"),
]

TYPES = [
    (f"{P} {key}={value}", key)
    for key, value in (
        *(("seed", "1.5"), ("seed", "null"), ("seed", "[1]"), ("seed", "inf")),
        *(("num_train_steps", "1e400"), ("num_train_steps", "-1"), ("num_envs", "0"), ("num_envs", "true")),
        *(("async_envs", "maybe"), ("env_timeout_s", "0"), ("env_timeout_s", "nan"), ("grace_s", "-1")),
        *(("env_timeout_s", "1e300"), ("grace_s", "1e300"), ("n_step", "1000000000")),
        *(("eval_frequency", "0"), ("num_eval_episodes", "0"), ("keep_checkpoints", "0"), ("log_frequency", "-1")),
        *(("checkpoint_frequency", "often"), ("save_replay_buffer", "7")),
        *(("precision", "fp8"), ("execution", "3"), ("replay_storage", "disk"), ("num_threads", "0")),
        *(("replay_buffer_capacity", "0"), ("replay_buffer_capacity", "none"), ("update_every", "0")),
        *(("updates_per_step", "0"), ("updates_per_step", "-1"), ("updates_per_step", "inf")),
        *(("agent.critic_tau", "2"), ("agent.critic_tau", "fast"), ("agent.batch_size", "0.5")),
        *(("agent.actor.log_std_limit", "hard"), ("agent.init_temperature", "-1"), ("agent.actor_q", "max")),
        *(("agent.critic.init", "glorot"), ("agent.name", "null"), ("agent.critic.head", "tqc")),
        ("agent._target_", "null"),
        *(("logger._target_", "nope"), ("evaluator._target_", "logger.Nope"), ("evaluator", "null")),
        *(("replay_buffer._target_", "3"), ("replay_buffer", "3"), ("logger.sinks", "3"), ("agent.critic", "null")),
    )
]

KEYS = [  # unknown keys and choices, and values of the wrong type or range
    ("batch_size=3", "did you mean agent.batch_size"),
    ("agent.batchsize=3", "did you mean agent.batch_size"),
    ("+batchh=3", "did you mean agent.batch_size"),
    ("+agent.batchh=3", "did you mean agent.batch_size"),
    ("agent.foo=1", "agent.foo: unknown key; `python train.py --cfg job` prints them all"),
    (f"{P} frame_stack=Auto", "frame_stack=Auto: an integer or auto goes here"),
    (f"{P} env_kwargs=3", "env_kwargs=3: a group of keys, {key: value}, goes here"),
    (f"{P} agent.actor_betas=0.9", "agent.actor_betas=0.9: a list, [a, b], goes here"),
    ("pre=cpu", "did you mean preset"),
    ("agent.obs_dim=3", "comes from the environment"),
    ("+agent.critic.action_dim=3", "comes from the environment"),
    ("agent=sca", "agent=sca: no such choice; there are "),
    ("preset=fsat", "there are cartpole, cpu"),
    ("'preset=[cpu,nope]'", "preset=nope"),
    ("agent.critic=5", "a group of keys"),
    ("agent.critic.head=mean", "or write one, agent.critic.head={_target_: <class>, _partial_: true}"),
    ("+preset=cpu", "+preset=cpu: write preset=cpu, which replaces the choice"),
    ("nope/x=3", "there are none"),
    ("logger.sinks.csv=3", "a group of keys"),
    ("logger.sinks.console.columns=critic_loss", "logger.sinks.console.columns=critic_loss: a list, [a, b], goes here"),
    ("'logger.sinks.console.columns=[loss/critic]'", "log key 'loss/critic': it has to start with train/"),
    ("\"logger.sinks.console.columns=['']\"", "the name of a column of train.csv or eval.csv goes here"),
    ("agent._target_=agent.sac.Nope", "cannot be imported"),
    ("seed=abc", "an integer goes here"),
    ("seed=-1", "greater than or equal to 0"),
    ("seed=true", "a number goes here"),
    ("num_train_steps=", "an integer goes here"),
    ("num_train_steps=1.5", "an integer goes here"),
    ("num_train_steps=0", "greater than 0"),
    ("agent.batch_size=-4", "greater than 0"),
    ("agent.critic.hidden_dim=0", "greater than 0"),
    ("agent.discount=1.5", "less than or equal to 1"),
    ("'agent.actor.log_std_bounds=[2,-5]'", "lower bound comes first"),
    ("'agent.actor.log_std_bounds=[1,2,3]'", "a list of 2 values goes here"),
    ("'agent.actor.log_std_bounds=[-inf,2]'", "finite"),
    ("'agent.critic_betas=[0.9,1.0]'", "less than 1"),
    ("reward_scale=nan", "finite"),
    ("seed=4294967296", "less than 4294967296"),
    ("'reward_scale={_target_: agent.schedule.Piecewise, points: []}'", "at least 1 item"),
    ("'reward_scale={_target_: agent.schedule.Linear, start: 1, final: 0, steps: 0}'", "greater than 0"),
    ("agent._target_=agent.policy", "cannot be imported"),
    ("agent.actor._partial_=false", "_partial_: true"),
    ("logger.sinks.csv._partial_=false", "_partial_: true"),
    ("evaluator._partial_=false", "_partial_: true"),
    ("agent.temperature=fixed", "agent/temperature=<name>"),
    ("execution=fast", "should be 'auto', 'eager'"),
    ("agent.exploration=held", "a group of keys goes here"),
    ("agent.critic_weight_decay=-1", "greater than or equal to 0"),
    ("agent.critic_weight_decy=1", "did you mean agent.critic_weight_decay"),
    ("agent/exploration=holds", "no such choice; there are held, held_through, none"),
    (
        "agent/exploration=null",
        "agent/exploration=null: the name of a choice goes here; there are held, held_through, none",
    ),
    ("n_step=0", "greater than 0"),
    ("'~agent.critic'", "is missing"),
    ("seed", "reads key=value"),
    ("'experiment=${nowhere}'", "nowhere"),
]


VALUES = NODES + PARTS + TYPES + KEYS
ALL = VALUES + MISSING + BUILT + SHAPES + PRESETS + ENVIRONMENTS + OVERRIDES + FOLDERS + SWEEPS
# Each takes a third of a second: some of every kind run here, and `make thorough` runs the rest.
LINES = [
    pytest.param(*case, marks=() if index % (9 if case in VALUES else 3) == 0 else pytest.mark.thorough)
    for index, case in enumerate(ALL)
]
LIMIT_S = 120  # ends a line that would run for ever; each takes under a second


@pytest.fixture
def no_hang() -> Iterator[None]:
    def over(*_: object) -> None:
        raise TimeoutError(f"more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize(("line", "message"), LINES)
def test_a_wrong_command_line(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", *(shlex.split(line) or [""])])

    def started(*_: object, **__: object) -> None:
        raise AssertionError("a run would have begun")

    monkeypatch.setattr(command, "hydra_main", started)
    monkeypatch.setattr(job, "begin_run", started)
    assert command.main() == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and message in said.err, said.err
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("line", "message"), VALUES)
def test_a_wrong_value(line: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        settings(*shlex.split(line))
    assert message in str(caught.value) and "\n" not in str(caught.value)
