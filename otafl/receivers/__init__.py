"""Combination of the server's antennas to one, and scaling of the received sum."""
