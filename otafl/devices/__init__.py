"""Devices: hardware, availability, protocols of the uplink slots, and faults."""
