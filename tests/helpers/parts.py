"""The parts under "What goes with what" in docs/AGENTS_PARTS.md, as overrides, and the agents they go with."""

import re
from pathlib import Path

from agents import TINY

PAGE = Path(__file__).parents[2] / "docs/AGENTS_PARTS.md"
SIZES = dict.fromkeys(("sac_v", "sac_2018"), ("agent.value.hidden_dim=16",)) | dict.fromkeys(("drq", "drq_norm"), TINY)


def norm(name: str, **keys: str) -> str:
    """Returns the node of a norm or another class of agent.networks."""
    keys = {"_target_": f"agent.networks.{name}", "_partial_": "true", **keys}
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def network(of: str, **keys: str) -> tuple[str, ...]:
    """Returns overrides that give the actor or the critic hidden layers with a norm or dropout."""
    return (f"agent.{of}.network={norm('NormedMLP', **keys)}",)


def head(name: str, **keys: str) -> tuple[str, ...]:
    return (f"agent.critic.head={norm(name, **keys)}",)


PARTS: dict[str, tuple[str, ...]] = {
    "dropout in the critics": network("critic", dropout="0.1"),
    "dropout in the actor": network("actor", dropout="0.1"),
    "LayerNorm": network("critic", norm=norm("LayerNorm")) + network("actor", norm=norm("LayerNorm")),
    "RMSNorm": network("critic", norm=norm("RMSNorm")) + network("actor", norm=norm("RMSNorm")),
    "BatchNorm": network("critic", norm=norm("BatchNorm")),
    "targets of the mean": head("ScalarHead", target_q="mean"),
    "quantile head": head("QuantileHead"),
    "categorical head": head("CategoricalHead"),
    "Huber head": head("HuberHead"),
    "normalised observations": ("agent/observation_normaliser=running",),
    "normalised rewards": ("agent/reward_normaliser=returns",),
    "held noise": ("agent/exploration=held",),
    "weight decay": ("agent.actor_weight_decay=0.1", "agent.critic_weight_decay=0.1"),
    "prioritised rows": ("replay_buffer=prioritized",),
    "fading rows": ("replay_buffer=fading",),
    "averaged actor": ("agent.actor_average_share=0.3",),
}


AGENTS = sorted(path.stem for path in (PAGE.parents[1] / "config/agent").glob("[!_]*.yaml"))


def table() -> dict[tuple[str, str], bool]:
    """Returns whether each agent and part go together, as the page says."""
    rows = PAGE.read_text().partition("| part | agents |\n| --- | --- |\n")[2].partition("\n\n")[0]
    together: dict[tuple[str, str], bool] = {}
    for row in rows.splitlines():
        parts, which = (cell.strip() for cell in row.strip("|").split("|"))
        named = set(re.findall(r"`(\w+)`", which))
        assert named <= set(AGENTS), f"no such agent: {named - set(AGENTS)}"
        but = which.startswith("all")
        together |= {(agent, part): (agent in named) != but for agent in AGENTS for part in parts.split(", ")}
    return together


def overrides(name: str, *parts: str) -> tuple[str, ...]:
    """Returns overrides for an agent with some parts; choices of files first take away the nodes that these replace."""
    given = [override for part in parts for override in PARTS[part]]
    replaced = {"agent/network=mlp": ".network={"}
    if name not in ("sac_v", "sac_2018"):
        replaced["agent/head=none"] = ".head={"
    choices = (choice for choice, sign in replaced.items() if any(sign in override for override in given))
    return (f"agent={name}", *choices, *SIZES.get(name, ()), *given)
