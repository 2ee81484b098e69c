"""Protocols: rules for the instants at which uplink slots open."""

from otafl.devices.protocols.base import Late, Protocol, Rules

__all__ = ["Late", "Protocol", "Rules"]
