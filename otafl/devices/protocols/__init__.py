"""Say when uplink slots open; each file is a protocol."""

from otafl.devices.protocols.base import Late, Protocol, Rules

__all__ = ["Late", "Protocol", "Rules"]
