"""Analyses of results: overhead, timelines, tuning, deviations."""
