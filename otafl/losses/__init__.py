"""Losses: what training lowers, and the metrics of a test that belong to it."""
