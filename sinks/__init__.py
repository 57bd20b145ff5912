"""Where logs go: one class a sink, one line of `logger.sinks` in YAML each."""

from sinks.console import ConsoleSink
from sinks.csv_files import CsvSink
from sinks.sink import Sink
from sinks.tensorboard import TensorBoardSink
from sinks.wandb import WandbSink

__all__ = ["ConsoleSink", "CsvSink", "Sink", "TensorBoardSink", "WandbSink"]
