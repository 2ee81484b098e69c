"""Look at a scenario before it runs, and report what is found."""

from otafl.preflight.reporting import Report, report

__all__ = ["Report", "report"]
