"""A study of several runs (plot.py is the command)."""

import logging

# matplotlib warns if it cannot write its cache, as in a read-only home folder, but draws all the same.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
