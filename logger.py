"""Scalars in, averages out, to whatever sinks the configuration names (see sinks/)."""

import copy
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from settings.keys import dotted
from settings.types import Factory, NonNegativeInt, Part
from settings.validated import Validated
from sinks.sink import GROUPS, Row, Sink, group_of
from utils import Every, require_count

SinkFactory = Annotated[Factory, Part("a sink", ("log_dir",), ("dump", "close"))]


class Meter:
    """A running sum; tensors are added where they lie and fetched only when asked for."""

    def __init__(self) -> None:
        self.total: Any = 0
        self.count = 0

    def add(self, value: Any, n: int) -> None:
        self.total = value + self.total  # not in place: `value` may be a buffer that the next update overwrites
        self.count += n


def fetch(meters: dict[str, Meter]) -> Row:
    """The meters' averages, all tensors of a device in one copy from it; a single int stays one."""
    totals = {key: meter.total for key, meter in meters.items()}
    tensors = {key: total.float() for key, total in totals.items() if isinstance(total, torch.Tensor)}
    for device in {total.device for total in tensors.values()}:
        here = {key: total for key, total in tensors.items() if total.device == device}
        totals |= dict(zip(here, torch.stack(list(here.values())).tolist(), strict=True))
    return {key: totals[key] if meter.count == 1 else totals[key] / meter.count for key, meter in meters.items()}


def _number(total: Any) -> Any:
    """A saved meter's sum."""
    if not isinstance(total, int | float | torch.Tensor):
        raise ValueError(f"a meter's sum is {type(total).__name__}")
    return total


def _spread(keys: tuple[str, ...], bundle: Meter, meters: dict[str, Meter]) -> None:
    """Adds what was summed as one tensor to the meters of its keys."""
    for key, total in zip(keys, bundle.total, strict=True):
        meters.setdefault(key, Meter()).add(total, bundle.count)


class Logger(Validated):
    """Averages what is logged between dumps and hands it to the sinks.

    Args:
        log_dir: the run's folder; it is made if it is not there.
        sinks: factories by name, each called with `log_dir`; null switches one off.
        log_frequency: steps between histograms.
        log_every_steps: steps between points of TensorBoard's scalar curves; 0 is at dumps.
    """

    def __init__(
        self,
        log_dir: Path,
        sinks: dict[str, SinkFactory | None],
        log_frequency: NonNegativeInt = 10_000,
        log_every_steps: NonNegativeInt = 0,
    ):
        log_dir.mkdir(parents=True, exist_ok=True)
        self.sinks: dict[str, Sink] = {name: make(log_dir=log_dir) for name, make in sinks.items() if make}
        self._frequency = log_frequency
        self._every_steps = log_every_steps
        self._histograms_due = Every(log_frequency)
        self._due: dict[str, Every] = {}
        self._meters: dict[str, Meter] = {}
        self._bundles: dict[tuple[str, ...], Meter] = {}  # of values that came together, summed as one tensor
        self._fine_meters: dict[str, Meter] = {}  # since the last point of the finer curve, by key
        self._fine_due: dict[str, Every] = {}

    def log_settings(self, config: dict[str, Any]) -> None:
        """The run's configuration, nested, for the sinks that show it; once, before anything is logged."""
        for sink in self.sinks.values():
            sink.settings(dotted(config))

    def log(self, key: str, value: Any, step: int, n: int = 1, log_frequency: int = 1) -> None:
        """Adds a scalar to its meter.

        Args:
            key: `train...` or `eval...` (see sinks/sink.py).
            value: a number, or a detached tensor of one element, which is not waited for.
            step: environment steps so far.
            n: how many values `value` is the sum of.
            log_frequency: log only where a multiple of this many steps was crossed.
        """
        if log_frequency > 1 and not self._crossed(key, step, log_frequency):
            return
        if isinstance(value, torch.Tensor):
            value = value.detach().reshape(())
        meter = self._meters.get(key)
        if meter is None:
            group_of(key)  # refuses a key without a group
            meter = self._meters[key] = Meter()
        meter.add(value, n)
        if self._every_steps:
            self._fine_meters.setdefault(key, Meter()).add(value, n)
            if self._fine_due.setdefault(key, Every(self._every_steps))(step):
                self._scalars({key: self._fine_meters.pop(key)}, step)

    def log_all(self, values: dict[str, Any], step: int) -> None:
        """As `log` of each, keys of one group; the tensors (detached scalars of one device) cost one addition."""
        together = {} if self._every_steps else {k: v for k, v in values.items() if isinstance(v, torch.Tensor)}
        for key, value in values.items():
            if key not in together:
                self.log(key, value, step)
        if together:
            meter = self._bundles.setdefault(tuple(together), Meter())
            meter.add(torch.stack(list(together.values())), 1)

    def _unbundle(self, group: str) -> None:
        """Splits bundles into a meter a key, at their group's dump: an earlier split would change rounding."""
        for keys in [keys for keys in self._bundles if group_of(keys[0]) == group]:
            _spread(keys, self._bundles.pop(keys), self._meters)

    def log_param(
        self, key: str, module: Any, step: int, log_frequency: int | None = None, member: int | None = None
    ) -> None:
        """Histograms of a layer's weight and bias (`_w`, `_b`) and of their gradients (`_w_g`, `_b_g`).

        Args:
            key: such as `train_critic/q1_fc0`.
            module: has `weight` and perhaps `bias`.
            member: the row of an ensemble's parameters; None for a layer of its own.
        """
        for name, suffix in (("weight", "w"), ("bias", "b")):
            parameter = getattr(module, name, None)
            if parameter is None:
                continue
            for tensor, ending in ((parameter, suffix), (parameter.grad, f"{suffix}_g")):
                if tensor is not None:
                    values = tensor if member is None else tensor[member]
                    self.log_histogram(f"{key}_{ending}", values, step, log_frequency)

    def log_histogram(self, key: str, histogram: Any, step: int, log_frequency: int | None = None) -> None:
        """A histogram of a tensor's or array's values; `log_frequency` defaults to the logger's."""
        frequency = self._frequency if log_frequency is None else log_frequency
        if frequency != 1 and not self._crossed(key, step, frequency):
            return
        values = (
            histogram.detach().float().cpu().numpy() if isinstance(histogram, torch.Tensor) else np.asarray(histogram)
        )
        for sink in self.sinks.values():
            sink.histogram(key, values.reshape(-1), step)

    def log_video(self, key: str, frames: Any, step: int, fps: float = 30.0) -> None:
        """Frames (T, H, W, 3), uint8, for the sinks that show videos."""
        for sink in self.sinks.values():
            sink.video(key, np.asarray(frames, np.uint8), fps, step)

    def log_image(self, key: str, image: Any, step: int) -> None:
        """A picture (H, W, 3), uint8, for the sinks that show pictures."""
        values = image.cpu().numpy() if isinstance(image, torch.Tensor) else np.asarray(image, np.uint8)
        for sink in self.sinks.values():
            sink.image(key, values, step)

    def histograms_due(self, step: int) -> bool:
        """Whether a multiple of `log_frequency` was crossed since the last call."""
        return self._histograms_due(step)

    def _crossed(self, key: str, step: int, frequency: int) -> bool:
        return self._due.setdefault(key, Every(frequency))(step)

    def dump(self, step: int, save: bool = True, ty: str | None = None) -> Row:
        """Ends a row: averages every meter of group `ty` (both groups if None), writes and clears them.

        With `save=False` they are cleared unwritten.

        Returns:
            What was written, by log key.
        """
        written: Row = {}
        for group in GROUPS if ty is None else (ty,):
            self._unbundle(group)
            keys = [key for key in self._meters if group_of(key) == group]
            meters = {key: self._meters.pop(key) for key in keys}
            fine = {key: self._fine_meters.pop(key) for key in keys if key in self._fine_meters}
            if not save or not meters:
                continue
            row = fetch(meters)
            if self._every_steps:
                self._scalars(fine, step)
            else:
                self._to_sinks_scalars(row, step)
            for sink in self.sinks.values():
                sink.dump(group, row, step)
            written |= row
        return written

    def peek(self) -> Row:
        """What a dump of every group would average now; nothing is written or cleared."""
        meters = {key: copy.copy(meter) for key, meter in self._meters.items()}
        for keys, bundle in self._bundles.items():
            _spread(keys, bundle, meters)
        return fetch(meters)

    def _scalars(self, meters: dict[str, Meter], step: int) -> None:
        if meters:
            self._to_sinks_scalars(fetch(meters), step)

    def _to_sinks_scalars(self, row: Row, step: int) -> None:
        for sink in self.sinks.values():
            sink.scalars(row, step)

    def close(self) -> None:
        """Flushes and closes every sink."""
        for sink in self.sinks.values():
            sink.close()

    def state_dict(self) -> dict[str, Any]:
        """Unfinished meters, what fired when, and where each sink's log ends."""

        def plain(meters: dict[str, Meter]) -> dict[str, tuple[Any, int]]:
            return {key: (meter.total, meter.count) for key, meter in meters.items()}

        def fired(due: dict[str, Every]) -> dict[str, tuple[int, int]]:
            return {key: (every.frequency, every.last_step) for key, every in due.items()}

        return {
            "meters": plain(self._meters),
            "bundles": [(list(keys), bundle.total, bundle.count) for keys, bundle in self._bundles.items()],
            "fine_meters": plain(self._fine_meters),
            "due": fired(self._due),
            "fine_due": fired(self._fine_due),
            "histograms_due": self._histograms_due.state_dict(),
            "sinks": {name: sink.state_dict() for name, sink in self.sinks.items()},
        }

    def lost(self, state: dict[str, Any]) -> dict[Path, str]:
        """The sinks' files that are gone or damaged since the state was taken, and what is wrong with each."""
        there = {name: sink for name, sink in self.sinks.items() if name in state["sinks"]}
        return {path: wrong for name, sink in there.items() for path, wrong in sink.lost(state["sinks"][name]).items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned; the sinks, whose files are cut back, come last."""

        def meters(plain: dict[str, tuple[Any, int]]) -> dict[str, Meter]:
            restored = {key: Meter() for key in plain}
            for key, (total, count) in plain.items():
                restored[key].add(_number(total), require_count(count, key))
            return restored

        self._meters = meters(state["meters"])
        self._bundles = {tuple(keys): Meter() for keys, _, _ in state["bundles"]}
        for keys, total, count in state["bundles"]:
            self._bundles[tuple(keys)].add(_number(total), require_count(count, "count"))
        self._fine_meters = meters(state["fine_meters"])
        for name, restored in (("due", self._due), ("fine_due", self._fine_due)):
            restored.clear()
            for key, (frequency, last_step) in state[name].items():
                restored[key] = Every(require_count(frequency, key), require_count(last_step, key))
        self._histograms_due.load_state_dict(state["histograms_due"])
        for name, sink in self.sinks.items():
            if name in state["sinks"]:
                sink.load_state_dict(state["sinks"][name])
