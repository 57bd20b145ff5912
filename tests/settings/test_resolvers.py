"""Values that the configuration computes from others."""

from pathlib import Path

import pytest

from settings import compose as resolvers

OWN = "import gymnasium\n\ngymnasium.register('OfThatLength-v0', lambda: None, max_episode_steps=150)\n"


def test_the_discount_knows_the_length_of_an_id_in_a_package_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_that_length.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    assert resolvers.discount_of_length("of_that_length:OfThatLength-v0", {}, 1) == pytest.approx(1 - 5 / 150)


@pytest.mark.parametrize("env", ["cheetah_run", "no_such_task", "no_such_package:No-v0", 3])
def test_other_episodes_have_the_length_that_environments_get(env: object) -> None:
    assert resolvers.discount_of_length(env, {}, 4) == pytest.approx(1 - 5 / 250)
