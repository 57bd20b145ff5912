"""Everything a run saves, and how it is read again. To learn how a checkpoint is read, start with checkpoint.py."""
