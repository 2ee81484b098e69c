"""Tell callers of the uplink what an aggregation brought and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class UplinkReport:
    """Say what an aggregation cost and how far it was off.

    Where a payload was sent in Q segments (a channel that changes within it), active, h, p, c and
    eta have a leading [Q].

    Parameters
    ----------
    nmse : float
        Squared error over the squared exact mean, of what the codec made of the updates.
    symbols : float
        Channel uses of the payload.
    bits : float
        Bits of the payload, on a digital uplink.
    side_symbols : float
        Channel uses of side information.
    participants : int
        Devices that were heard.
    airtime_s : float
        Seconds that the slot took.
    energy_j : ndarray
        [K], radiated joules.
    tx_power_w : ndarray
        [K], radiated watts, mean over the payload.
    active : ndarray
        [K] bool, who was on air.
    h : ndarray, optional
        [K] complex, scalar channels after the receiver's combining, large-scale gain included;
        None, as the next three, on transports that do not superpose.
    p : ndarray, optional
        [K] complex, transmit scalars.
    c : ndarray, optional
        [K], effective gains Re(h p) / sqrt(eta).
    eta : float or ndarray, optional
        Receive scaling.
    """

    nmse: float
    symbols: float
    bits: float
    side_symbols: float
    participants: int
    airtime_s: float
    energy_j: np.ndarray
    tx_power_w: np.ndarray
    active: np.ndarray
    h: np.ndarray | None = None
    p: np.ndarray | None = None
    c: np.ndarray | None = None
    eta: float | np.ndarray | None = None


@dataclass(frozen=True)
class UplinkTotals:
    """Add up what all calls of an uplink cost.

    Parameters
    ----------
    rounds : int
        Calls so far.
    symbols, bits, side_symbols : float
        Channel uses and bits, as in `UplinkReport`.
    airtime_s : float
        Seconds.
    energy_j : ndarray
        [K], radiated joules.
    """

    rounds: int
    symbols: float
    bits: float
    side_symbols: float
    airtime_s: float
    energy_j: np.ndarray


@dataclass(frozen=True)
class Delivery:
    """Hold what a round brought.

    mean: as of `WirelessUplink`. each: where the transport tells devices apart, the updates as they
    arrived, of the senders in the order in which they were given, None for a lost one; else None.
    """

    mean: Any
    report: UplinkReport
    each: list[Any] | None
