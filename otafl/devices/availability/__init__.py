"""Availability of devices: each file is a law of their presence."""

from otafl.devices.availability.base import Availability, AvailabilitySetup, Life, Lives

__all__ = ["Availability", "AvailabilitySetup", "Life", "Lives"]
