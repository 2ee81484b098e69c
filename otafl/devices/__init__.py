"""Devices: hardware, availability, protocols of the uplink slots, faults and attacks."""
