"""What a study searches, and the sampler of its values."""

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep, Transformer
from hydra.errors import HydraException
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from settings.types import NonNegativeInt
from settings.validated import Validated
from utils import UserError, one_line


class SeededTPE(Validated, BaseSampler):
    """Creates a new TPESampler (TPE: Bergstra et al., 2011) for each trial, and for each value that is sampled
    independently, with a seed that depends on the trial's number and the value's key.

    A single generator would restart with the process, so a continued study would repeat the values of its first
    trials. The other arguments are TPESampler's.
    """

    def __init__(self, seed: NonNegativeInt, n_startup_trials: NonNegativeInt = 10, **options: Any):
        self._seed = seed
        self._options = {"n_startup_trials": n_startup_trials} | options
        self._sampler = self._seeded(0, "")  # raises for an unknown option

    def _seeded(self, number: int, name: str) -> TPESampler:
        entropy = np.random.SeedSequence([self._seed, number, zlib.crc32(name.encode())])
        return TPESampler(seed=int(entropy.generate_state(1)[0]), **self._options)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._sampler = self._seeded(trial.number, "")  # draws the values in the next call
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        sampler = self._seeded(trial.number, param_name)
        return sampler.sample_independent(study, trial, param_name, param_distribution)


def search_space(overrides: Iterable[Override]) -> dict[str, BaseDistribution]:
    """Returns the distribution of each searched key; raises UserError for a range that cannot be searched."""
    space = {}
    for override in overrides:
        if override.is_sweep_override():
            try:
                space[override.get_key_element()] = _distribution(override)
            except (ValueError, HydraException) as error:
                raise UserError(f"{override.input_line}: {one_line(error)}") from None
    return space


def _distribution(override: Override) -> BaseDistribution:
    value = override.value()
    if isinstance(value, IntervalSweep):
        if value.tags - {"log"}:
            raise ValueError("the only tag is log")
        assert value.start is not None and value.end is not None
        return _numbers(value.start, value.end, log="log" in value.tags)
    if isinstance(value, RangeSweep):
        in_order = sorted(value.range())
        return _numbers(in_order[0], round(in_order[-1], 12), step=abs(value.step))  # 0.1 + 0.1 + 0.1 is more than 0.3
    if getattr(value, "shuffle", False):
        raise ValueError("the sampler chooses the order; leave shuffle out")
    choices: Iterable[Any] = override.sweep_iterator(_choice)
    return CategoricalDistribution([*choices])


def _numbers(low: float, high: float, **options: Any) -> BaseDistribution:
    whole = isinstance(low, int) and isinstance(high, int)
    return IntDistribution(int(low), int(high), **options) if whole else FloatDistribution(low, high, **options)


def _choice(value: Any) -> bool | int | float | str:
    """Returns a number or bool unchanged, and anything else as the text of an override, with quotes and escapes."""
    return value if isinstance(value, bool | int | float) else Transformer.str(value)
