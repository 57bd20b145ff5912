"""Evaluation of a run's policy.

- evaluator.py: runs the episodes of one evaluation
- evaluations.py: evaluates whenever it is due, and logs the results
- background.py: runs evaluations in the background, in a process of their own, so that training need not wait
"""
