"""What the file of an algorithm is built from, besides networks and losses (see agent/api.py)."""
