"""What the file of an algorithm is built from, besides networks and losses (see docs/NEW_AGENT.md)."""
