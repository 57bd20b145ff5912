"""Evaluates a run's policy: `python evaluate.py exp/<day>/<run>`, or `.../checkpoints/step_<number>` for an older one.

The file of a policy can be evaluated too: `python evaluate.py policies/cheetah_run.pt --video out.mp4`. Prints the
return of each episode when it ends, and films the first one. Without `--seed`, the episodes are those of the evaluation
during training at that step. Neither the replay buffer nor a GPU is needed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.opengl import NO_VIDEOS
from run.environments import can_render
from run.evaluation.evaluations import BEST
from run.evaluation.evaluator import Evaluator
from run.run_policy import load_run_policy, run_folder_of
from run.stopping import EXIT_INTERRUPTED
from utils import OneLineParser, RunError, UserError


def evaluate(
    path: Path,
    num_episodes: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    film: Path | None = None,
    trusted: Sequence[str] = (),
    sample: bool = False,
    dataset_id: str | None = None,
    views: bool = False,
) -> list[float]:
    """Evaluates the policy of a checkpoint (see run.run_policy.load_run_policy); returns the episodes' returns.

    None as `num_episodes` or `seed` uses the run's; with `views`, episodes are shown in a window, and by
    default until it is closed. `film` is the file for the video of the first one, `dataset_id` where all are recorded.
    """
    if dataset_id is not None:
        from replay import minari_sets  # needs the extra `data`
    policy = load_run_policy(path, device, trusted)
    cfg, make_env, recorded = policy.cfg, policy.make_env, list[Any]()
    seed = cfg.seed if seed is None else seed
    returns, infos = list[float](), dict[str, list[float]]()
    if views:
        from run.evaluation import view  # imports glfw, which needs the display's libraries

        for value, length in view.watch(policy, num_episodes, seed, sample):
            _print_episode(len(returns), value, length)
            returns.append(value)
    else:
        if film is not None and not can_render(cfg):
            print(NO_VIDEOS)
            film = None
        if dataset_id is not None:
            make_env = lambda render: minari_sets.Recorder(policy.make_env(render), recorded)  # noqa: E731
        film_path, count = None if film is None else (lambda step: film), num_episodes or cfg.num_eval_episodes
        evaluator = Evaluator(make_env, seed, count, film_path, cfg.action_repeat, 10, sample, _print_episode)
        evaluation = evaluator.evaluate(policy.actor, policy.step)
        evaluator.close()
        returns, infos = evaluation.returns, evaluation.infos
        if film is not None and film.exists():
            print(film)
        if dataset_id is not None:
            print(minari_sets.write_dataset(dataset_id, recorded, policy, sample))
    if returns:
        print(f"{policy.path}: mean {np.mean(returns):.4f}, std {np.std(returns):.4f} over {len(returns)} episodes")
    for key, values in infos.items():
        print(f"{key}: mean {np.mean(values):.4f} over {len(values)} episodes")
    return returns


def _print_episode(episode: int, value: float, length: int) -> None:
    print(f"episode {episode + 1}: return {value:.4f}, {length} steps", flush=True)


def main() -> None:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("path", type=Path, help="the folder of a run, a checkpoint in it, or a policy's file")
    add("--best", action="store_true", help="the policy of the run's best evaluation")
    add("--episodes", type=int, help="number of episodes (default: as in training)")
    add("--seed", type=int, help="seed of the episodes (default: the seed of the run)")
    add("--sample", action="store_true", help="sample the actions (default: greedy ones)")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:<number> (default: auto)")
    add("--video", type=Path, help="default: <run folder>/video/evaluate.mp4; a policy's file: none")
    add("--view", action="store_true", help="show the policy live in a window, until it is closed")
    add("--no-video", action="store_true", help="do not film")
    add("--dataset", metavar="ID", help="record a Minari data set, such as cheetah/expert-v0 (docs/DATA.md)")
    add("--trust", action="append", default=[], metavar="PACKAGE", help="a package of the run's classes")
    args = parser.parse_args()
    path = (args.path / BEST if args.best else args.path).resolve()
    film = args.video or (None if path.suffix == ".pt" else run_folder_of(path) / "video/evaluate.mp4")
    film = None if args.no_video or args.view else film
    try:
        evaluate(path, args.episodes, args.seed, args.device, film, args.trust, args.sample, args.dataset, args.view)
    except (UserError, RunError) as error:
        parser.error(error)
    except KeyboardInterrupt:
        parser.exit(EXIT_INTERRUPTED, "interrupted\n")


if __name__ == "__main__":
    main()
