"""Averages logged values and passes them to the sinks (see sinks/)."""

import copy
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from settings.keys import dotted
from settings.types import Factory, Interface, NonNegativeInt
from settings.validated import Validated
from sinks.sink import GROUPS, Row, Sink, group_of
from utils import Every, require_count, to_np

SINK_METHODS = tuple(name for name in vars(Sink) if not name.startswith("_"))
SinkFactory = Annotated[Factory, Interface("a sink", ("log_dir",), SINK_METHODS)]


class Meter:
    """A running sum. Tensors are summed on their device, and not copied to the host before they are needed."""

    def __init__(self) -> None:
        self.total: Any = 0
        self.count = 0

    def add(self, value: Any, n: int) -> None:
        if isinstance(value, torch.Tensor) and isinstance(self.total, torch.Tensor):
            self.total = self.total.to(value.device)  # restored on the CPU
        self.total = value + self.total  # not in place: the next update may overwrite `value`
        self.count += n


def fetch(meters: dict[str, Meter]) -> Row:
    """Averages meters, with one copy to the host per device. A single int stays an int."""
    totals = {key: meter.total for key, meter in meters.items()}
    tensors = {key: total.float() for key, total in totals.items() if isinstance(total, torch.Tensor)}
    for device in {total.device for total in tensors.values()}:
        on_device = {key: total for key, total in tensors.items() if total.device == device}
        totals |= dict(zip(on_device, torch.stack(list(on_device.values())).tolist(), strict=True))
    return {key: totals[key] if meter.count == 1 else totals[key] / meter.count for key, meter in meters.items()}


def _restored_meter(key: str, total: Any, count: Any) -> Meter:
    """Returns a meter from a saved state, which may be damaged or forged."""
    if not isinstance(total, int | float | torch.Tensor):
        raise ValueError(f"a meter's sum is {type(total).__name__}")
    meter = Meter()
    meter.add(total, require_count(count, key))
    return meter


def _unbundle(keys: tuple[str, ...], bundle: Meter, meters: dict[str, Meter]) -> None:
    """Adds the elements of a summed tensor to the meters of its keys."""
    for key, total in zip(keys, bundle.total, strict=True):
        meters.setdefault(key, Meter()).add(total, bundle.count)


class Logger(Validated):
    """Averages what is logged between dumps and passes it to the sinks.

    Args:
        log_dir: the run's folder, which is created if it does not exist.
        sinks: factories by name, each called with `log_dir`; null disables a sink.
        log_frequency: steps between histograms.
        log_every_steps: steps between points of TensorBoard's scalar curves, which also get one at each dump; 0 adds
            no more.
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
        self._bundles: dict[tuple[str, ...], Meter] = {}  # values of one `log_all`, summed as one tensor
        self._fine_meters: dict[str, Meter] = {}  # values since a curve's last point (log_every_steps)
        self._fine_due: dict[str, Every] = {}

    def log_settings(self, config: dict[str, Any]) -> None:
        """Passes the run's nested configuration to the sinks, once, before anything is logged."""
        for sink in self.sinks.values():
            sink.settings(dotted(config))

    def log(self, key: str, value: Any, step: int, n: int = 1, log_frequency: int = 1) -> None:
        """Adds a scalar to its meter.

        Args:
            key: `train...` or `eval...` (see sinks/sink.py).
            value: a number, or an array or tensor of one element; no tensor is copied to the host before it is written.
            step: environment steps so far.
            n: the number of values that `value` is the sum of.
            log_frequency: log only if a multiple of this many steps was crossed.
        """
        if log_frequency > 1 and not self._crossed(key, step, log_frequency):
            return
        if isinstance(value, torch.Tensor):
            value = value.detach().reshape(())
        elif isinstance(value, np.generic | np.ndarray):
            value = value.item()  # a checkpoint holds no NumPy numbers
        meter = self._meters.get(key)
        if meter is None:
            group_of(key)  # raises for a key without a group
            meter = self._meters[key] = Meter()
        meter.add(value, n)
        if self._every_steps:
            self._fine_meters.setdefault(key, Meter()).add(value, n)
            if self._fine_due.setdefault(key, Every(self._every_steps, start=step))(step):
                self._send_scalars(fetch({key: self._fine_meters.pop(key)}), step)

    def log_all(self, values: dict[str, Any], step: int) -> None:
        """Logs each key of one group, as `log`; adds all tensors (detached scalars on one device) at once."""
        tensors = {} if self._every_steps else {k: v for k, v in values.items() if isinstance(v, torch.Tensor)}
        for key, value in values.items():
            if key not in tensors:
                self.log(key, value, step)
        if tensors:
            self._bundles.setdefault(tuple(tensors), Meter()).add(torch.stack(list(tensors.values())), 1)

    def log_param(
        self, key: str, module: Any, step: int, log_frequency: int | None = None, member: int | None = None
    ) -> None:
        """Logs histograms of a layer's weight and bias (`_w`, `_b`) and of their gradients (`_w_g`, `_b_g`).

        Args:
            key: such as `train_critic/q1_fc0`.
            member: the index in an ensemble's parameters; None if the layer is not an ensemble.
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
        """Logs a histogram of a tensor or an array; `log_frequency` defaults to the logger's."""
        frequency = self._frequency if log_frequency is None else log_frequency
        if frequency != 1 and not self._crossed(key, step, frequency):
            return
        values = to_np(histogram.float()) if isinstance(histogram, torch.Tensor) else np.asarray(histogram)
        for sink in self.sinks.values():
            sink.histogram(key, values.reshape(-1), step)

    def log_video(self, key: str, frames: Any, step: int, fps: float = 30.0) -> None:
        """Logs frames (T, H, W, 3), uint8."""
        for sink in self.sinks.values():
            sink.video(key, np.asarray(frames, np.uint8), fps, step)

    def log_image(self, key: str, image: Any, step: int) -> None:
        """Logs an image (H, W, 3), uint8."""
        values = to_np(image) if isinstance(image, torch.Tensor) else np.asarray(image, np.uint8)
        for sink in self.sinks.values():
            sink.image(key, values, step)

    def histograms_due(self, step: int) -> bool:
        """Returns whether a multiple of `log_frequency` was crossed since the last call."""
        return self._histograms_due(step)

    def _crossed(self, key: str, step: int, frequency: int) -> bool:
        every = self._due.setdefault(key, Every(frequency))
        every.frequency = frequency  # may differ from a restored one's
        return every(step)

    def dump(self, step: int, save: bool = True, ty: str | None = None) -> Row:
        """Ends a row: averages the meters of group `ty` (both groups if None), writes the averages, clears the meters.

        Args:
            save: False clears the meters without writing.

        Returns:
            The averages by log key.
        """
        written: Row = {}
        for group in GROUPS if ty is None else (ty,):
            # Bundles are split only here: an earlier split would change the order of additions, and so the rounding.
            for bundle_keys in [keys for keys in self._bundles if group_of(keys[0]) == group]:
                _unbundle(bundle_keys, self._bundles.pop(bundle_keys), self._meters)
            keys = [key for key in self._meters if group_of(key) == group]
            meters = {key: self._meters.pop(key) for key in keys}
            fine = {key: self._fine_meters.pop(key) for key in keys if key in self._fine_meters}
            for key in fine:  # the next value, at this same step, begins a new point
                self._fine_due[key](step)
            if not save or not meters:
                continue
            row = fetch(meters)
            self._send_scalars(fetch(fine) if self._every_steps else row, step)
            for sink in self.sinks.values():
                sink.dump(group, row, step)
            written |= row
        return written

    def peek(self) -> Row:
        """Returns the averages that a dump of both groups would write now, without writing or clearing."""
        meters = {key: copy.copy(meter) for key, meter in self._meters.items()}
        for keys, bundle in self._bundles.items():
            _unbundle(keys, bundle, meters)
        return fetch(meters)

    def _send_scalars(self, row: Row, step: int) -> None:
        if row:
            for sink in self.sinks.values():
                sink.scalars(row, step)

    def close(self) -> None:
        """Flushes and closes every sink."""
        with ExitStack() as stack:  # if one fails, the others are closed too
            for sink in reversed(self.sinks.values()):
                stack.callback(sink.close)

    def state_dict(self) -> dict[str, Any]:
        """Returns the meters since the last dump, the last step of each frequency, and where each sink's log ends."""
        return {
            "meters": {key: (meter.total, meter.count) for key, meter in self._meters.items()},
            "bundles": [(list(keys), bundle.total, bundle.count) for keys, bundle in self._bundles.items()],
            "fine_meters": {key: (meter.total, meter.count) for key, meter in self._fine_meters.items()},
            "due": {key: (every.frequency, every.last_step) for key, every in self._due.items()},
            "fine_due": {key: (every.frequency, every.last_step) for key, every in self._fine_due.items()},
            "histograms_due": self._histograms_due.state_dict(),
            "sinks": {name: sink.state_dict() for name, sink in self.sinks.items()},
        }

    def lost(self, state: dict[str, Any]) -> dict[Path, str]:
        """Returns the sinks' files that are missing or damaged since the state was taken, with what is wrong."""
        faults: dict[Path, str] = {}
        for name, sink in self.sinks.items():
            if name in state["sinks"]:
                faults |= sink.lost(state["sinks"][name])
        return faults

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state. The sinks, which cut back their files, are restored last."""
        self._meters = {key: _restored_meter(key, *saved) for key, saved in state["meters"].items()}
        self._bundles = {tuple(keys): _restored_meter("count", *saved) for keys, *saved in state["bundles"]}
        self._fine_meters = {key: _restored_meter(key, *saved) for key, saved in state["fine_meters"].items()}
        for name, restored in (("due", self._due), ("fine_due", self._fine_due)):
            restored.clear()
            for key, (frequency, last_step) in state[name].items():
                restored[key] = Every(require_count(frequency, key), require_count(last_step, key))
        self._histograms_due.load_state_dict(state["histograms_due"])
        for name, sink in self.sinks.items():
            if name in state["sinks"]:
                sink.load_state_dict(state["sinks"][name])
