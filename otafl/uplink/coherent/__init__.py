"""Transports that align phases, so that the channel adds the devices' signals coherently."""
