"""Preflight: checks of a scenario before a run, and their report."""

from otafl.preflight.reporting import Report, report

__all__ = ["Report", "report"]
