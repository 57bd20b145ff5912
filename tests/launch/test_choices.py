"""Choices of config files: by a pattern, and from a user's own folder."""

from collections.abc import Callable
from pathlib import Path

import pytest
from lines import prepared_folder, sweep_arguments, sweep_request

from launch import request
from settings import compose
from utils import UserError

QUICK = ("env=Pendulum-v1", "save_video=false", "agent.critic.hidden_dim=8", "agent.actor.hidden_dim=8")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with an agent and a preset; Hydra would read the folder's name as a list."""
    folder = tmp_path / "my conf,(1)"
    for group, name, text in (
        ("agent", "mine", "# Mine is faster. And more.\ndefaults: [sac, _self_]\nname: mine\n"),
        ("preset", "own", "# @package _global_\nagent: {alpha_lr: 1e-3}\n"),
    ):
        (folder / group).mkdir(parents=True)
        (folder / group / f"{name}.yaml").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("glob(s*)", "sac sac_2018 sac_discrete sac_v simba"),
        ("glob([s*,t*],exclude=[*_*,tqc])", "sac simba td3"),
        ("glob(m*)", "mine"),
        ("glob([m*,t*],exclude=*c)", "mine td3"),
    ],
)
def test_a_pattern_sweeps_what_it_matches(pattern: str, names: str, own: Path) -> None:
    overrides = [f"agent={pattern}", compose.searching([own])]
    variants = request.variants(compose.parse(overrides), overrides)
    assert [variant[0] for variant in variants] == [f"agent={name}" for name in names.split()]


def test_a_star_sweeps_every_agent_and_no_file_that_others_build_on() -> None:
    variants = request.variants(compose.parse(["agent=glob(*)"]), ["agent=glob(*)"])
    files = {path.stem for path in (compose.CONFIG_DIR / "agent").glob("*.yaml")}
    assert {"_base", "_soft", "sac"} < files
    assert [variant[0] for variant in variants] == [f"agent={name}" for name in sorted(files) if name[0] != "_"]


def test_the_command_sweeps_a_pattern_and_checks_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: Path
) -> None:
    with monkeypatch.context() as patched:
        runs, _ = sweep_request(tmp_path, patched, "-m", "agent=glob(s*)", *QUICK, "hydra.sweep.dir=sw")
    assert [cfg.agent["name"] for cfg in runs] == ["sac", "sac_2018", "sac_discrete", "sac_v", "simba"]
    with pytest.raises(UserError, match=r"agent\.alpha_lr: unknown key|agent\.alpha_lr=0\.001"):
        sweep_arguments("-m", "agent=glob(*d*)", "agent.alpha_lr=1e-3", *QUICK)


def test_hydra_sweeps_the_same_choices(
    command: Callable[..., int], own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from launch import job

    begun = []
    monkeypatch.setattr(job, "_in_folder", lambda config, folder: begun.append((config.agent.name, folder.name)))
    quiet = ("hydra/job_logging=none", "hydra/hydra_logging=none")
    assert command(f"--config-dir={own}", "-m", "agent=glob([m*,td3])", *QUICK, *quiet, "hydra.sweep.dir=sw") == 0
    assert begun == [("mine", "agent-mine"), ("td3", "agent-td3")]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("agent=mine2", "agent=mine2: no such choice; there are "),
        ("agent=3", "the name of a choice goes here; there are "),
        ("preset=owns", "lunar_lander_discrete, many_worlds, own, pendulum"),
        ("agent.batchsize=3", "did you mean agent.batch_size"),
    ],
)
def test_a_mistyped_choice_lists_ones_own(
    argument: str, message: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    choice = [] if argument.startswith("agent=") else ["agent=mine"]
    with pytest.raises(UserError) as caught:
        prepared_folder(f"--config-dir={own}", *choice, argument)
    assert message in str(caught.value)


def test_ones_own_preset_is_named_where_it_does_not_fit(own: Path) -> None:
    overrides = ["agent=td3", "preset=own", compose.searching([own])]
    with pytest.raises(UserError, match=r"preset=own: it sets agent\.alpha_lr, which agent=td3 does not have"):
        compose.checked(compose.compose_config("train", overrides), overrides)


def test_help_lists_ones_own(command: Callable[..., int], capsys: pytest.CaptureFixture[str], own: Path) -> None:
    assert command(f"--config-dir={own}", "--help") == 0
    said = capsys.readouterr().out
    assert "\n  mine                            Mine is faster\n" in said and "\n  own" in said and "\n  simba " in said
    assert command("--help") == 0
    assert "mine " not in capsys.readouterr().out
