"""The destinations of logs: one class per sink, each a line of `logger.sinks` in the YAML."""

from sinks.console import ConsoleSink as ConsoleSink
from sinks.csv_files import CsvSink as CsvSink
from sinks.sink import Sink as Sink
from sinks.tensorboard import TensorBoardSink as TensorBoardSink
from sinks.wandb import WandbSink as WandbSink
