"""Networks of actors and critics: layers, blocks, encoders and critics' heads, for `_target_` in the YAML."""

# Imported for others, which is why no name is used here.
# ruff: noqa: F401
# mypy: implicit-reexport

from agent.networks.batch_norm import BatchNorm
from agent.networks.encoder import Encoder
from agent.networks.heads import CategoricalHead, HuberHead, QuantileHead, ScalarHead
from agent.networks.layers import Dropout, LayerNorm, RMSNorm
from agent.networks.mlp import MLP, Linear
from agent.networks.residual import Network, NormedMLP, PostNormBlock, PreNormBlock, Residual
