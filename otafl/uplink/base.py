"""Define a transport: it takes a round's updates to the server, and says what that costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import (
    NO_LIMITS,
    ChannelState,
    Cohort,
    LinkBudget,
    LinkReport,
    Payload,
    Received,
    TransmitLimits,
)
from otafl.core.stateful import Stateful
from otafl.csi.base import Csi
from otafl.uplink.delivery import Delivery

Access = Literal["tdma", "ofdma"]
Counts = Literal["shared", "one", "all"]


@dataclass(frozen=True)
class OrthogonalUplink:
    """Hold what devices know beforehand of an uplink on which each has channel uses of its own.

    access: turns on the whole band, or equal parts of it. gap: [S] linear, by which the SNR counts
    as lower. rate_factor: [S]. bits(reals): of an update of so many reals. csi: what is believed of
    the channel.
    """

    access: Access
    gap: np.ndarray
    rate_factor: np.ndarray
    bits: Callable[[int], float]
    csi: Csi


class Transport(Stateful, ABC):
    """A scheme that carries the payload of a slot to the server (`deliver`).

    It is made of its settings and of the parts of `otafl.uplink.build` that its constructor
    names, and is final: what several schemes do alike are functions, or objects that they hold.

    budget: powers and bandwidth.
    """

    budget: LinkBudget

    provides: ClassVar[frozenset[str]]
    """What the server gets of the updates: "mean", and "each" where devices are told apart."""

    counts: ClassVar[Counts]
    """Whose symbols `uplink_symbols` are: those that all devices share, the longest device's, or
    those of all devices, one after the other."""

    loses_updates: ClassVar[bool] = True
    """An update is not received whose device has no energy to send it."""

    provides_sums: ClassVar[bool] = True
    """The server can get the plain sum of what devices send, which a vote is not."""

    is_unbiased: ClassVar[bool] = True
    """Without noise and fading the server gets what was sent, to rounding of floats."""

    uses_fading: ClassVar[bool] = True
    """What arrives, and at what cost, depends on the channel's h, which else is not drawn."""

    obeys_power: ClassVar[bool] = False
    """It asks the power policy what devices send with; else they send at full power."""

    accounts_privacy: ClassVar[bool] = False
    """It clips payloads, and accounts for what it tells of a device's data."""

    supports_intercell: ClassVar[bool] = False
    """It adds the signals of other servers' devices to each server's own."""

    supports_snr_growth: ClassVar[bool] = False
    """The receiver's noise can fall from round to round (`channel.snr_growth`)."""

    supports_heavy_tails: ClassVar[bool] = False
    """It puts heavy-tailed interference on each received real (`Impairments.tails`)."""

    class Settings(settings.Settings):
        """Hold the section `transport` of a scenario."""

        @property
        def has_access_plan(self) -> bool:
            """Return whether devices can plan their energy for what an update takes (`planned`)."""
            return False

    @property
    def uses_empty_slots(self) -> bool:
        """Return whether it accounts for slots in which no device transmits, and so is given a
        payload without rows in these."""
        return False

    def check_payload(self, payload: Payload) -> None:
        """Raise UserError for a payload that it does not carry."""

    def compute_metrics(self) -> dict[str, Tensor]:
        """Return further results so far, name of `otafl.results.variables` -> [S]."""
        return {}

    @abstractmethod
    def transmit(self, delivery: Delivery) -> None:
        """Carry the groups of `delivery.uplink` to the server: give it what it gets of each, note
        what arrives, and add up what it costs."""

    def get_access_plan(self) -> OrthogonalUplink | None:
        """Return what devices know beforehand of an uplink of their own; None where there is no
        such thing."""
        return None


def deliver(
    transport: Transport,
    payload: Payload,
    cohort: Cohort,
    channel: ChannelState,
    round: int,
    limits: TransmitLimits = NO_LIMITS,
) -> tuple[Received, LinkReport]:
    """Deliver the payload of a slot.

    Parameters
    ----------
    transport : Transport
        Scheme that carries the groups on the uplink. Those on the ideal route come free of error
        and of charge.
    payload : Payload
        Groups of rows [n, *shape].
    cohort : Cohort
        The N rows that send.
    channel : ChannelState
        Channel of the slot, h complex [S, K, A, B, F].
    round : int
        Number of the slot, which its draws depend on.
    limits : TransmitLimits
        What bounds the transmissions beside the power budget.

    Returns
    -------
    tuple of Received and LinkReport
        What the server gets of each group, and what it cost.
    """
    transport.check_payload(payload)
    apart = "each" in transport.provides
    delivery = Delivery(payload, cohort, channel, round, limits, transport.budget, apart)
    if delivery.uplink:
        transport.transmit(delivery)
    return delivery.get_received(), delivery.report()
