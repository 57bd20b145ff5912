"""Everything a run saves, and how it is read again. To learn how a checkpoint is read, start with checkpoint.py.

- checkpoint.py: the layout of `checkpoints/`; finds, verifies and reads a checkpoint
- checkpoint_writer.py: writes checkpoints and deletes old ones
- state.py: collects the state of a run's parts for a checkpoint, and restores it
- resume.py: the settings a run continues with; damaged.py: what it may continue without
- run_policy.py: loads what a run has learned, from a checkpoint, best.py (the policy of the best evaluation) or
  policy_bundle.py (a policy exported from its run)
- agent_file.py: a whole agent in one file, without a run
- folder.py: a run's folder: its lock, and whether the run has finished or failed
- trust.py: which classes a saved configuration may name
"""
