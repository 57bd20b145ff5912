"""The destinations of logs: one class per sink, each a line of `logger.sinks` in the YAML."""

from sinks.console import ConsoleSink
from sinks.csv_files import CsvSink
from sinks.sink import Sink
from sinks.tensorboard import TensorBoardSink
from sinks.wandb import WandbSink

__all__ = ["ConsoleSink", "CsvSink", "Sink", "TensorBoardSink", "WandbSink"]
