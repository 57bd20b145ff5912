"""From runs to a study: read them, group them, average them, draw them (see plot.py for the command)."""

import logging

# It warns where it cannot keep its cache, as in a home folder that cannot be written, and draws all the same.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
