"""Say when devices are there; each file is a law by which they come and go."""

from otafl.devices.availability.base import Availability, AvailabilitySetup, Life, Lives

__all__ = ["Availability", "AvailabilitySetup", "Life", "Lives"]
