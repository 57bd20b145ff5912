"""From a command line to runs."""
