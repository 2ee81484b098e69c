"""Runs of one stack, round by round: memory, checkpoints, tracking."""
