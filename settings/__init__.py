"""The settings of a run: how the YAML and the command line become checked values."""
