"""Reports on the error and cost of an aggregation, for callers of the uplink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class UplinkReport:
    """Cost and error of one aggregation.

    If a payload is sent in Q segments (a channel that changes within it), active, h, p, c and eta
    have a leading dimension [Q].

    Parameters
    ----------
    nmse : float
        Squared error over the squared exact mean, relative to the codec's output.
    symbols : float
        Channel uses of the payload.
    bits : float
        Bits of the payload on a digital uplink.
    side_symbols : float
        Channel uses of side information.
    participants : int
        Number of devices whose update was delivered.
    airtime_s : float
        Duration of the slot in seconds.
    energy_j : ndarray
        [K] radiated energy in joules.
    tx_power_w : ndarray
        [K] radiated power in watts, averaged over the payload.
    active : ndarray
        [K] bool, true for devices that transmitted.
    h : ndarray, optional
        [K] complex, scalar channels after receive combining, with large-scale gain. None, as are p,
        c and eta, for transports without superposition.
    p : ndarray, optional
        [K] complex, transmit scalars.
    c : ndarray, optional
        [K] effective gains Re(h p) / sqrt(eta).
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
    """Total cost of all calls of an uplink.

    Parameters
    ----------
    rounds : int
        Number of calls.
    symbols, bits, side_symbols : float
        Channel uses and bits, as in `UplinkReport`.
    airtime_s : float
        Duration of all slots in seconds.
    energy_j : ndarray
        [K] radiated energy in joules.
    """

    rounds: int
    symbols: float
    bits: float
    side_symbols: float
    airtime_s: float
    energy_j: np.ndarray


@dataclass(frozen=True)
class OwnDelivery:
    """Updates that the server received in a round.

    Parameters
    ----------
    mean : array, tensor or mapping
        Estimate of the weighted mean, as returned by `WirelessUplink`.
    report : UplinkReport
        Cost and error of the aggregation.
    per_device : list, optional
        Received update of each transmitter, in the given order, with None for a lost update. None
        if the transport does not separate the devices.
    """

    mean: Any
    report: UplinkReport
    per_device: list[Any] | None
