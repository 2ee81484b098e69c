"""Runs of one stack: memory, chunks, checkpoints, tracking."""
