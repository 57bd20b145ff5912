"""Averages logged values and passes them to the sinks (see sinks/)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from settings.types import Factory, NonNegativeInt
from sinks.sink import GROUPS, Row, Sink, group_of
from utils import dotted, to_np

Sums = dict[tuple[str, ...], tuple[Any, int]]  # keys that are logged together -> sum of their values, and their number


class Logger:
    """Averages what is logged between dumps and passes it to the sinks."""

    def __init__(
        self,
        log_dir: Path,
        sinks: dict[str, Factory | None],
        log_frequency: NonNegativeInt = 10_000,
    ):
        log_dir.mkdir(parents=True, exist_ok=True)
        self.sinks: dict[str, Sink] = {name: make(log_dir=log_dir) for name, make in sinks.items() if make}
        self._frequency = log_frequency
        self._last_steps: dict[str, int] = {}  # at which a frequency was last looked at
        self._sums: Sums = {}  # since the last dump

    def log_settings(self, config: dict[str, Any]) -> None:
        self._send("settings", dotted(config))

    def log(self, key: str, value: Any, step: int, n: int = 1, log_frequency: int = 1) -> None:
        """Adds a number, or an array or tensor of one element, which is a sum of `n` values, to the average of a key.

        With a `log_frequency`, it does so only if a multiple of this many steps was crossed since the last call.
        """
        if log_frequency > 1 and not self._crossed(key, step, log_frequency):
            return
        if isinstance(value, torch.Tensor):
            value = value.detach().reshape(1)
        elif isinstance(value, np.generic | np.ndarray):
            value = value.item()  # a checkpoint holds no NumPy numbers
        self._add((key,), value, step, n)

    def log_all(self, values: dict[str, Any], step: int) -> None:
        """Logs each key of one group, as `log`; adds all tensors (detached scalars on one device) at once."""
        tensors = {key: value for key, value in values.items() if isinstance(value, torch.Tensor)}
        for key in values:
            if key not in tensors:
                self.log(key, values[key], step)
        if tensors:
            self._add(tuple(tensors), torch.stack(list(tensors.values())), step)

    def _add(self, keys: tuple[str, ...], value: Any, step: int, n: int = 1) -> None:
        total, count = self._sums.get(keys, (0, 0))
        if isinstance(total, torch.Tensor) and isinstance(value, torch.Tensor):
            total = total.to(value.device)  # restored on the CPU
        self._sums[keys] = value + total, count + n  # not in place: the next update may overwrite `value`

    def log_param(
        self, key: str, module: Any, step: int, log_frequency: int | None = None, member: int | None = None
    ) -> None:
        """Logs histograms of a layer's weight and bias (`<key>_w`, `_b`) and of their gradients (`_w_g`, `_b_g`);
        `member` is an index in an ensemble's parameters."""
        for name, ending in (("weight", "w"), ("bias", "b")):
            parameter = getattr(module, name, None)
            for tensor, end in ((parameter, ending), (getattr(parameter, "grad", None), f"{ending}_g")):
                if tensor is not None:
                    self.log_histogram(f"{key}_{end}", tensor[... if member is None else member], step, log_frequency)

    def log_histogram(self, key: str, histogram: Any, step: int, log_frequency: int | None = None) -> None:
        """Logs a histogram of a tensor or an array; `log_frequency` defaults to the logger's."""
        frequency = self._frequency if log_frequency is None else log_frequency
        if frequency == 1 or self._crossed(key, step, frequency):
            self._send("histogram", key, to_np(torch.as_tensor(histogram).float()).reshape(-1), step)

    def histograms_due(self, step: int) -> bool:
        return self._crossed("histograms", step, self._frequency)

    def _crossed(self, what: str, step: int, frequency: int) -> bool:
        last_step, self._last_steps[what] = self._last_steps.get(what, 0), step
        return frequency > 0 and step // frequency > last_step // frequency

    def dump(self, step: int, save: bool = True, ty: str | None = None) -> Row:
        """Ends a row of group `ty` (None: of both); unless `save` is False, writes and returns its averages."""
        written: Row = {}
        for group in GROUPS if ty is None else (ty,):
            row = _averages({keys: self._sums.pop(keys) for keys in list(self._sums) if group_of(keys[0]) == group})
            if save and row:
                self._send("dump", group, row, step)
                written |= row
        return written

    def _send(self, method: str, *arguments: Any) -> None:
        for sink in self.sinks.values():
            getattr(sink, method)(*arguments)

    def close(self) -> None:
        self._send("close")

    def state_dict(self) -> dict[str, Any]:
        sinks = {name: sink.state_dict() for name, sink in self.sinks.items()}  # where each log ends
        return {"sums": dict(self._sums), "last_steps": dict(self._last_steps), "sinks": sinks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums, self._last_steps = dict(state["sums"]), dict(state["last_steps"])
        for name in self.sinks.keys() & state["sinks"].keys():
            self.sinks[name].load_state_dict(state["sinks"][name])


def _averages(sums: Sums) -> Row:
    """Averages sums by key; waits for the device once. A single int stays an int."""
    tensors = [total for total, _ in sums.values() if isinstance(total, torch.Tensor)]
    fetched = iter(torch.cat([each.to(tensors[-1].device) for each in tensors]).tolist() if tensors else ())
    totals: dict[str, tuple[Any, int]] = {}
    for keys, (total, count) in sums.items():
        values = [next(fetched) for _ in keys] if isinstance(total, torch.Tensor) else [total]
        for key, value in zip(keys, values, strict=True):
            earlier, earlier_count = totals.get(key, (0, 0))
            totals[key] = earlier + value, earlier_count + count
    return {key: total if count == 1 else total / count for key, (total, count) in totals.items()}
