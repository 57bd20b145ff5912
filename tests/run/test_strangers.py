"""Resuming or evaluating a run with a stranger's files executes none of their code."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from run.resume import load_settings
from run.run_policy import load_run_policy
from utils import UserError


@pytest.mark.parametrize("use", [load_settings, load_run_policy])
def test_the_module_of_a_strangers_environment_is_not_imported(copied: Path, use: Callable[[Path], Any]) -> None:
    path = copied / "config.yaml"
    path.write_text(path.read_text().replace("env: ProbeTimeLimit-v0", "env: evil_module:ProbeTimeLimit-v0"))
    with pytest.raises(UserError, match="trust=evil_module"):
        use(copied)
    assert "evil_module" not in sys.modules


def test_a_yaml_tag_and_an_interpolation_run_no_code(copied: Path, mark: Path) -> None:
    path = copied / "config.yaml"
    text = path.read_text()
    for hostile in (f"!!python/object/apply:os.mkdir [{mark}]", "${oc.env:HOME}"):
        path.write_text(text.replace("experiment: ", f"hostile: {hostile}\nexperiment: "))
        with pytest.raises((UserError, yaml.YAMLError)):
            load_settings(copied)
    assert not mark.exists()
