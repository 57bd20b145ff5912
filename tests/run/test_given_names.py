"""A run's folder from someone else, with links where files are to be written: nothing outside it changes."""

import os
from pathlib import Path

import pytest
from runs import go_on
from strangers import outside

import export
from run.saving import best


def test_hard_links_in_the_checkpoints_are_not_written_through(copied: Path) -> None:
    victim = copied.parent / "victim.csv"
    before = outside(copied)
    os.link(victim, copied / "checkpoints/buffer/.part.rows")
    os.link(victim, copied / "checkpoints/best/.policy.pt.part")
    run = go_on(copied, "num_train_steps=90")
    best.BestPolicy(copied).keep(run.agent.policy, 90, 1e9)
    assert best.result_of(copied)[0] == 90 and (copied / "checkpoints/step_90").is_dir()
    assert outside(copied) == before


def test_a_link_in_place_of_a_policys_or_a_segments_file_is_replaced(copied: Path) -> None:
    before = outside(copied)
    os.link(copied.parent / "victim.csv", copied / "checkpoints/buffer/000000000060-000000000090.rows")
    run = go_on(copied, "num_train_steps=90")
    for name in ("policy.pt", "manifest.json"):
        (copied / "checkpoints/best" / name).unlink()
        os.link(copied.parent / "victim.csv", copied / "checkpoints/best" / name)
    best.BestPolicy(copied).keep(run.agent.policy, 90, 1e9)
    assert best.result_of(copied)[0] == 90 and outside(copied) == before


@pytest.mark.parametrize("kind", ["torchscript", "policy"])
def test_an_export_is_written_through_no_link(copied: Path, kind: str) -> None:
    given = copied.parent / "given"
    given.mkdir()
    (given / f".x.{'pt' if kind == 'policy' else kind}.part").symlink_to(copied.parent / "victim.csv")
    output = given / ("x.pt" if kind == "policy" else "x.torchscript")
    output.symlink_to(copied.parent / "victim.csv")
    output.with_name(f"{output.name}.json").symlink_to(copied.parent / "victim.csv")
    before = {name: content for name, content in outside(copied).items() if not name.startswith(str(given))}
    assert export.export(copied, kind, output=output) == output and not output.is_symlink()
    after = {name: content for name, content in outside(copied).items() if not name.startswith(str(given))}
    assert after == before
