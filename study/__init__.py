"""A study of several runs (plot.py is the command). runs.py reads them, groups.py finds repetitions of one experiment,
statistics.py averages, profiles.py compares final returns, references.py reads published curves, summary.py puts these
together. figures.py, tables.py and report.py show the result, with the colours of style.py.
"""

import logging

# matplotlib warns if it cannot write its cache, as in a read-only home folder, but draws all the same.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
