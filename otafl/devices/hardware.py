"""Hardware of the devices: speed, memory, battery and power draw, and what they do with it.

Hardware does not change during a trial.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

ACTIVITIES = ("receive", "compute", "wait", "transmit", "lost", "left", "empty")
"""Activities of a timeline.

lost: reception and local work for an update that never gets into a slot. left, empty:
absence because the device is not available or has no charge.
"""

CAUSES = ("compute", "transmit", "circuit", "receive", "idle")
"""Causes of energy consumption.

compute: local work. transmit: draw of the power amplifier. circuit: the radio's circuits during a
transmission. receive: the radio during the downlink. idle: waiting for the slot, and sleep.
"""


@dataclass(frozen=True)
class Hardware:
    """Hardware of devices, as read-only float64 arrays of one shape.

    The shape is [K] for a trial or [S, K] for a stack. A quantity that is equal for all devices is
    one number in memory.

    Parameters
    ----------
    flops_per_s : ndarray
        Operations per second at `frequency_hz`.
    frequency_hz, frequency_min_hz : ndarray
        Highest and lowest clock frequency.
    kappa : ndarray
        Effective switched capacitance in J s^2 / cycle^3.
    memory_mb : ndarray
        Memory for training in MiB, inf without a bound.
    battery_j : ndarray
        Capacity of the battery, inf on mains.
    charge_j : ndarray
        Charge at the start, inf on mains.
    restart_j : ndarray
        Charge at which a device returns after its battery was empty.
    harvest_w : ndarray
        Power that charges the battery.
    circuit_w : ndarray
        Power of the radio's circuits during a transmission, beside that of the amplifier.
    receive_w : ndarray
        Power during reception.
    idle_w : ndarray
        Power while an update waits for its slot.
    sleep_w : ndarray
        Power of a device without work.
    efficiency : ndarray
        Radiated power over the power that the amplifier draws.
    power_db : ndarray
        Transmit power over that of the channel's settings, in dB.
    """

    flops_per_s: np.ndarray
    frequency_hz: np.ndarray
    frequency_min_hz: np.ndarray
    kappa: np.ndarray
    memory_mb: np.ndarray
    battery_j: np.ndarray
    charge_j: np.ndarray
    restart_j: np.ndarray
    harvest_w: np.ndarray
    circuit_w: np.ndarray
    receive_w: np.ndarray
    idle_w: np.ndarray
    sleep_w: np.ndarray
    efficiency: np.ndarray
    power_db: np.ndarray

    @staticmethod
    def stack(trials: Sequence[Hardware]) -> Hardware:
        """Join the hardware [K] of S trials to [S, K]."""
        names = [part.name for part in fields(Hardware)]
        return Hardware(*(_stack_trials([getattr(one, name) for one in trials]) for name in names))

    def select_rows(self, *at: np.ndarray | int) -> Hardware:
        """Return entries of each array by indices, such as trial [N] and device [N] of [S, K].

        Of a trial alone they are in the same memory.
        """
        return Hardware(*(getattr(self, part.name)[at] for part in fields(Hardware)))

    @functools.cached_property
    def is_on_mains(self) -> bool:
        """Whether no device has a battery."""
        return bool(np.isinf(self.battery_j).all())


def compute_energy_j(
    cycles: np.ndarray | float, frequency_hz: np.ndarray, kappa: np.ndarray
) -> np.ndarray:
    r"""Compute the energy of clock cycles.

    Parameters
    ----------
    cycles : ndarray or float
        Number of cycles C.
    frequency_hz : ndarray
        Clock frequency f.
    kappa : ndarray
        Effective switched capacitance in J s^2 / cycle^3.

    Returns
    -------
    ndarray
        Energy in joules, in the broadcast shape of the arguments.

    Notes
    -----
    .. math:: E = \kappa f^2 C

    References
    ----------
    Yang et al. 2021, "Energy Efficient Federated Learning Over Wireless Communication Networks".
    """
    return kappa * frequency_hz**2 * cycles


def _stack_trials(trials: Sequence[np.ndarray]) -> np.ndarray:
    """Join the arrays [K] of S trials to [S, K], in little memory if all devices are equal."""
    if any(one.strides != (0,) for one in trials):
        return trials[0][None] if len(trials) == 1 else np.stack(trials)
    return np.broadcast_to(np.stack([one[:1] for one in trials]), (len(trials), len(trials[0])))
