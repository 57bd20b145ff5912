"""From runs to a study: read them, group them, average them, draw them (see plot.py for the command)."""
