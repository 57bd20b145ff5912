"""A user's environment that breaks: its own traceback, in this process or another one, and a run that resumes."""

from collections.abc import Callable
from pathlib import Path

import composed
import numpy as np
import probes
import pytest
from runs import RUN, go_on

from run import workspace
from run.environments import make_train_envs


@pytest.mark.parametrize(
    ("env", "error", "message"), [("Faulty", ValueError, "lost\nits way"), ("FaultyReset", KeyError, "no way back")]
)
def test_what_breaks_in_an_environment_is_raised(
    tmp_path: Path, env: str, error: type[Exception], message: str
) -> None:
    run = probes.workspace(tmp_path, f"env=Probe{env}-v0", *RUN)
    with pytest.raises(error, match=message) as caught:
        run.run()
    assert caught.traceback[-1].path.name == "probes.py"
    (note,) = caught.value.__notes__
    assert note.startswith("stopped at step 4") and note.endswith("step_30")
    assert (tmp_path / "checkpoints/step_30").exists() and not (tmp_path / "finished.json").exists()


def test_what_breaks_in_another_process_is_raised_here_and_shown_with_its_own_traceback(tmp_path: Path) -> None:
    run = probes.workspace(tmp_path, "env=probes:ProbeFaulty-v0", *RUN, "async_envs=true", "num_envs=2")
    with pytest.warns(UserWarning, match="probes.py"), pytest.raises(ValueError, match="lost\nits way"):
        run.run()  # Gymnasium logs the process's traceback
    assert (tmp_path / "checkpoints/step_60").exists() and not (tmp_path / "finished.json").exists()


def test_the_command_prints_its_traceback_and_exits_with_3(
    command: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command("env=ProbeFaulty-v0", *probes.SMALL, *RUN, "hydra.run.dir=run") == 3
    said = capfd.readouterr().err
    assert "Traceback" in said and "probes.py" in said and "ValueError: lost" in said and "step_30" in said


def test_processes_have_the_numbers_of_one_process_and_restore_each_others_states() -> None:
    keys = ("env=Pendulum-v1", "num_envs=3", "action_repeat=9", "stagger_steps=150")
    here, apart = (make_train_envs(composed.settings(*keys, f"async_envs={apart}")) for apart in (False, True))
    everyone = np.ones(3, bool)
    obs = [envs.reset(options={"reset_mask": everyone})[0] for envs in (here, apart)]
    for action in np.random.default_rng(0).uniform(-1, 1, (30, 3, 1)).astype(np.float32):
        (obs_here, rewards_here, *ends_here, info_here), (obs_apart, rewards_apart, *ends_apart, info_apart) = (
            envs.step(action) for envs in (here, apart)
        )
        np.testing.assert_array_equal(obs_here, obs_apart)
        np.testing.assert_array_equal(rewards_here, rewards_apart)
        np.testing.assert_array_equal(ends_here, ends_apart)
        np.testing.assert_array_equal(info_here["repeats"], info_apart["repeats"])
        if (done := np.logical_or(*ends_here)).any():
            obs = [envs.reset(options={"reset_mask": done.copy()})[0] for envs in (here, apart)]
            np.testing.assert_array_equal(*obs)
    restored = here.reset(options={"reset_mask": everyone, "states": apart.call("state_dict")})[0]
    assert here.call("state_dict") == apart.call("state_dict")
    np.testing.assert_array_equal(restored[~done], obs_apart[~done])
    here.close()
    apart.close()


def test_one_that_does_not_render_trains_and_resumes_without_videos(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probes.train(tmp_path, "env=ProbeNoLimit-v0", *RUN, "num_train_steps=80", "save_video=true", "num_eval_episodes=1")
    go_on(tmp_path, "num_train_steps=160")
    assert capsys.readouterr().out.count("as it cannot be filmed (NotImplementedError") == 2
    assert not list(tmp_path.glob("video/*")) and workspace.read_finished(tmp_path) is not None
