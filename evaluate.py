"""Evaluates a run's policy: `python evaluate.py exp/<day>/<run>`, or `.../checkpoints/step_<number>` for an older one.

`--best` evaluates the policy of the best evaluation during training. The file of a policy can be evaluated too
(`python evaluate.py policies/cheetah_run.pt`); it is filmed with `--video out.mp4`.

Prints the return of each episode when it ends, and films the first one. Without `--seed`, the episodes are those of
the evaluation during training at that step. Neither the replay buffer nor a GPU is needed.

`--view` shows them live in a window instead, one after the other until it is closed.

`--dataset cheetah/expert-v0` records the episodes as a Minari data set (docs/DATA.md).
"""

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym
import numpy as np

from envs.episodes import Recorder, Recording
from envs.opengl import NO_VIDEOS
from run.environments import can_render
from run.evaluation.evaluations import BEST
from run.evaluation.evaluator import Evaluator
from run.run_policy import RunPolicy, load_run_policy, run_folder_of
from run.stopping import EXIT_INTERRUPTED
from utils import OneLineParser, RunError, UserError, print_error


def evaluate(
    path: Path,
    num_episodes: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    film: Path | None = None,
    trusted: Sequence[str] = (),
    sample: bool | None = None,
    dataset_id: str | None = None,
    views: bool = False,
) -> list[float]:
    """Evaluates the policy of a checkpoint; returns the episodes' returns.

    Args:
        path, device, trusted: see run.run_policy.load_run_policy.
        num_episodes, seed, sample: None uses the run's num_eval_episodes, seed, and eval_sample.
        film: the file for the video of the first episode; None records no video.
        dataset_id: the id of a data set to write the episodes to; None writes none.
        views: show the episodes in a window; None as `num_episodes` shows them until it is closed.
    """
    if dataset_id is not None:
        _require_new(dataset_id)  # before the episodes
    policy = load_run_policy(path, device, trusted)
    cfg, infos = policy.cfg, dict[str, list[float]]()
    seed, sample = cfg.seed if seed is None else seed, cfg.eval_sample if sample is None else sample
    if views:
        from run.evaluation import view  # imports glfw, which needs the display's libraries

        returns = []
        for value, length in view.watch(policy, num_episodes, seed, sample):
            returns.append(value)
            _print_episode(len(returns) - 1, value, length)
    else:
        if film is not None and not can_render(cfg):
            print(NO_VIDEOS)
            film = None
        recordings: list[Recording] = []
        make_env = policy.make_env
        if dataset_id is not None:  # a data set's episodes come from single environments

            def make_env(renders: bool) -> gym.Env:
                return Recorder(policy.make_env(renders), recordings)

        count = num_episodes or cfg.num_eval_episodes
        video_path = None if film is None else lambda step: film
        evaluator = Evaluator(
            make_env, seed, count, video_path, cfg.action_repeat, sample=sample, on_episode=_print_episode
        )
        evaluation = evaluator.evaluate(policy.actor, policy.step)
        evaluator.close()
        returns, infos = evaluation.returns, evaluation.infos
        if evaluation.preview is not None:
            print(film)
        if dataset_id is not None:
            print(_write_dataset(dataset_id, recordings, policy, sample))
    if returns:
        print(f"{policy.path}: mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    for key, values in infos.items():
        print(f"{key}: mean {np.mean(values):.4f} over {len(values)} episodes")
    return returns


def _require_new(dataset_id: str) -> None:
    """Raises UserError for the id of a data set that cannot be written, before its episodes are run."""
    from minari.dataset.minari_dataset import parse_dataset_id  # an optional package
    from minari.storage.datasets_root_dir import get_dataset_path

    try:
        parse_dataset_id(dataset_id)
    except (TypeError, ValueError):  # a TypeError where the version is missing
        raise UserError(f"--dataset {dataset_id}: must be an id such as cheetah/expert-v0") from None
    if get_dataset_path(dataset_id).exists():
        raise UserError(f"--dataset {dataset_id}: exists already; choose another version, such as -v1")


def _write_dataset(dataset_id: str, recordings: Sequence[Recording], policy: RunPolicy, sampled: bool) -> Path:
    """Writes episodes as a Minari data set, with the observations that the policy saw, and actions in the environment's
    own bounds; returns its folder."""
    import minari  # an optional package

    cfg, env = policy.cfg, policy.make_env(False)
    columns = "actions", "rewards", "terminations", "truncations"
    episodes = [
        minari.data_collector.EpisodeBuffer(
            seed=each.seed, observations=np.stack(each.obs), **{name: np.array(getattr(each, name)) for name in columns}
        )
        for each in recordings
    ]
    kind, name = "Sampled" if sampled else "Greedy", cfg.agent["name"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns that no environment is given
        data = minari.create_dataset_from_buffers(
            dataset_id,
            episodes,
            algorithm_name=name,
            description=f"{kind} episodes of {name} in {cfg.env} after {policy.step} steps of training.",
            observation_space=env.observation_space,
            action_space=env.get_wrapper_attr("own_actions").space,
            jpeg_encoding=False,
        )
    env.close()
    about = {"env": cfg.env, "action_repeat": cfg.action_repeat, "step": policy.step}
    groups = {"obs_groups": str(cfg.obs_groups)} if cfg.obs_groups else {}  # which reorder an observation's numbers
    data.storage.update_metadata(about | groups)
    return Path(data.storage.data_path).parent


def _print_episode(episode: int, value: float, length: int) -> None:
    print(f"episode {episode + 1}: return {value:.4f}, {length} steps", flush=True)


def main() -> int:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the folder of a run, a checkpoint in it, or a policy's file")
    parser.add_argument("--best", action="store_true", help="the policy of the run's best evaluation")
    parser.add_argument("--episodes", type=int, help="number of episodes (default: as in training)")
    parser.add_argument("--seed", type=int, help="seed of the episodes (default: the seed of the run)")
    sample_help = "sample the actions, or take the greedy ones (default: as in training's evaluations)"
    parser.add_argument("--sample", action=argparse.BooleanOptionalAction, help=sample_help)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:<number> (default: auto)")
    video_help = "default: <run folder>/video/evaluate.mp4; a policy's file: none"
    parser.add_argument("--video", type=Path, help=video_help)
    parser.add_argument("--view", action="store_true", help="show the policy live in a window; it records nothing")
    parser.add_argument("--no-video", action="store_true", help="do not film")
    parser.add_argument("--dataset", metavar="ID", help="record a data set, such as cheetah/expert-v0")
    parser.add_argument(
        "--trust", action="append", default=[], metavar="PACKAGE", help="a package of the run's classes"
    )
    arguments = parser.parse_args()
    episodes, seed, film = arguments.episodes, arguments.seed, arguments.video
    path = (arguments.path / BEST if arguments.best else arguments.path).resolve()
    try:
        if (episodes is not None and episodes < 1) or (seed is not None and seed < 0):
            raise UserError("--episodes must be 1 or more, --seed 0 or more")
        if film is not None and film.suffix != ".mp4":
            raise UserError(f"--video {film}: its name has to end in .mp4")
        if film is None and path.suffix != ".pt":
            film = run_folder_of(path) / "video/evaluate.mp4"
        film = None if arguments.no_video or arguments.view else film
        sample, dataset = arguments.sample, arguments.dataset
        evaluate(path, episodes, seed, arguments.device, film, arguments.trust, sample, dataset, arguments.view)
    except ModuleNotFoundError as error:
        return print_error(UserError(f"{error}; data sets need pip install -e '.[data]'"))
    except (UserError, RunError) as error:
        return print_error(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
