"""Limit what the policy wants to what devices can send, which is then on air."""

from __future__ import annotations

from otafl.core.contracts import Coefficients
from otafl.uplink.combine import ScalarChannels
from otafl.uplink.normalise import Symbols
from otafl.uplink.on_air import OnAir


def limit(symbols: Symbols, channels: ScalarChannels, wanted: Coefficients) -> OnAir:
    """Cut the p [S, Q, K] that the policy wants to what devices can send: by the energy that they
    have left, and by their crash."""
    bounds = symbols.slot.bounds
    coefficients = bounds.cut(wanted, channels.sends, symbols.energy)
    part = bounds.sent_part(symbols.sent, symbols.segments, symbols.uses)
    return OnAir(symbols, channels, coefficients, part)
