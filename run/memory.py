"""How much memory an agent asks for, told from its settings before anything is built."""

from typing import Any

import torch

from run.env_spec import EnvSpec
from settings.keys import walk
from settings.operating_system import available_bytes
from settings.schema import Settings
from utils import UserError

FLOAT_BYTES = 4
COPIES = 4  # of a weight: itself, its gradient and Adam's two averages; targets come on top


def require_memory(cfg: Settings, spec: EnvSpec, device: torch.device) -> None:
    """Refuses what no network of these widths could do without; what it lets pass may still be too much.

    Raises:
        UserError: for networks, or activations of a batch in them, that do not fit.
    """
    most = available_bytes()
    on_device = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else most
    batch_size, obs_dim = cfg.agent.get("batch_size"), spec.obs_dim
    if spec.is_image:  # of which the networks get an encoder's features
        obs_dim = (cfg.agent.get("encoder") or {}).get("feature_dim", 1)
        num_views = (cfg.agent.get("augmentation") or {}).get("num_views", 1)
        channels = (cfg.agent.get("encoder") or {}).get("channels")
        if isinstance(channels, int) and len(cfg.agent["encoder"].get("strides", ())) > 1:
            asked = FLOAT_BYTES * COPIES * 9 * channels**2
            _require(f"agent.encoder.channels={channels}", "for a convolution and its optimizer", asked, most)
        if isinstance(batch_size, int):
            asked = 2 * FLOAT_BYTES * batch_size * num_views * spec.obs_dim  # at both ends of the transitions
            _require(f"agent.batch_size={batch_size}", "for the images of one update", asked, on_device)
    for name, node in walk(cfg.agent, "agent."):
        if not isinstance(node, dict) or not isinstance(node.get("hidden_dim"), int):
            continue
        width, depth = node["hidden_dim"], node.get("hidden_depth", 1)
        members, outputs = node.get("num_critics", 1), _outputs(node)
        hidden = width * (obs_dim + width * (depth - 1) + outputs) if depth else obs_dim * outputs
        said = ", ".join(
            f"{name}.{key}={node[key]}" for key in ("hidden_dim", "hidden_depth", "num_critics") if key in node
        )
        said += f" and {outputs} outputs" if outputs > 1 else ""
        _require(said, "for its weights and their optimizer", FLOAT_BYTES * COPIES * members * hidden, most)
        if isinstance(batch_size, int):
            asked = FLOAT_BYTES * batch_size * members * max(width * depth, obs_dim)
            _require(f"agent.batch_size={batch_size}", f"for one update of {name}", asked, on_device)


def require_sizes(agent: dict[str, Any], file_bytes: int, said: str) -> None:
    """Refuses networks larger than the file with their weights, which would only fill the memory, and not fit.

    So many hidden layers of a width have as many biases or scales each, and products of the width squared between them;
    the file has four bytes for each, and the optimizers' moments besides.

    Args:
        agent: its node, of a saved configuration.
        file_bytes: of the file; 0 if there is none.
        said: whose they are, for the message.

    Raises:
        UserError: naming the network.
    """
    encoder = agent.get("encoder")
    if isinstance(encoder, dict) and isinstance(encoder.get("strides"), list) and len(encoder["strides"]) > 1:
        channels = encoder.get("channels", 1)
        if file_bytes and type(channels) is int and FLOAT_BYTES * 9 * channels**2 > file_bytes:
            raise UserError(f"{said}: agent.encoder.channels={channels}: more weights than are saved there")
    for key, value in walk(agent):
        if not isinstance(value, dict) or not str(value.get("_target_")).startswith("agent."):
            continue
        sizes = [value.get(name, 1) for name in ("hidden_dim", "hidden_depth", "num_critics")]
        if any(type(size) is not int for size in sizes) or not file_bytes:
            continue  # settings.schema says what is wrong with them
        width, depth, members = sizes
        if FLOAT_BYTES * members * max(depth * width, (depth - 1) * width**2) > file_bytes:
            raise UserError(
                f"{said}: agent.{key}.hidden_dim={width}, hidden_depth={depth}: more weights than are saved there"
            )


def _outputs(node: dict[str, Any]) -> int:
    """Of a head of quantiles or bins."""
    head = node.get("head")
    counts = [value for key, value in head.items() if key.startswith("num_")] if isinstance(head, dict) else []
    return max([1, *counts])


def _require(said: str, what_for: str, asked: int, available: int) -> None:
    if asked > available:
        raise UserError(f"{said}: about {asked:,} bytes are needed {what_for}, and {available:,} are available")
