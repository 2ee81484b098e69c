"""Deviations of the uplink's hardware and surroundings from the ideal link."""
