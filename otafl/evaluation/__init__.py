"""Evaluation of models, and the record of a run."""
