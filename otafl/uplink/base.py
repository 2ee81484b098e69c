"""Contract of a transport, which carries the payload of a slot to the server at a cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from otafl.codecs.base import Codec
from otafl.core import settings
from otafl.core.contracts import (
    NO_LIMITS,
    Broadcast,
    ChannelState,
    Cohort,
    Hyper,
    LinkBudget,
    LinkReport,
    Payload,
    Received,
    TransmitLimits,
)
from otafl.core.rng import Streams
from otafl.core.stateful import Stateful
from otafl.csi.base import Csi
from otafl.privacy.mechanism import Privacy
from otafl.uplink.delivery import Delivery
from otafl.uplink.intercell import InterCellInterference
from otafl.uplink.transmission import Alignment

Access = Literal["tdma", "ofdma"]
Counts = Literal["shared", "one", "all"]


@dataclass(frozen=True)
class OrthogonalUplink:
    """Knowledge of devices about an uplink with channel uses of their own, before they transmit.

    Parameters
    ----------
    access : {"tdma", "ofdma"}
        Turns on the whole band, or equal parts of it at the same time.
    gap : ndarray [S]
        Linear factor by which the SNR is divided.
    bits : callable, int -> float
        Bits of an update with a number of coordinates.
    csi : Csi
        Channel estimates of the devices.
    """

    access: Access
    gap: np.ndarray
    bits: Callable[[int], float]
    csi: Csi


@dataclass(frozen=True)
class Parts:
    """Parts of an uplink of S trials that a transport can use.

    Parameters
    ----------
    budget : LinkBudget
        Power budgets and bandwidth of the trials.
    alignment : Alignment
        Channel estimates, combiner, power policy and impairments.
    codec : Codec
        Compression of the updates.
    streams : Streams
        Random streams of the trials.
    hyper : Hyper
        Stackable fields of the transport, [S] each.
    privacy : Privacy or None
        Privacy account; None without clipping.
    neighbours : InterCellInterference or None
        Channels between servers and each other's devices; None without inter-cell interference.
    save_link, save_gram : bool
        Whether to save the coefficients of a link, and with them the signals' Gram matrices.
    """

    budget: LinkBudget
    alignment: Alignment
    codec: Codec
    streams: Streams
    hyper: Hyper
    privacy: Privacy | None = None
    neighbours: InterCellInterference | None = None
    save_link: bool = False
    save_gram: bool = True


class Transport(Stateful, ABC):
    """Scheme that carries the payload of a slot to the server (`deliver`).

    A transport is final: what several schemes share is a function, or an object that they hold.
    `otafl list NAME` prints an example scenario of each built-in transport.

    Parameters
    ----------
    settings : Settings
        Section `transport`; trials differ only in stackable fields.
    parts : Parts
        Parts of the uplink.

    Attributes
    ----------
    budget : LinkBudget
        Power budgets and bandwidth of the S trials.
    alignment : Alignment
        Channel estimates, combiner, power policy and impairments.
    """

    provides: ClassVar[frozenset[str]]
    """What the server gets of the updates: "mean", and "each" if it gets every device's update."""

    counts: ClassVar[Counts]
    """Symbols in `uplink_symbols`: shared by all devices, of the longest device, or of all."""

    provides_sums: ClassVar[bool] = True
    """Whether the server can get the plain sum of the signals, which a vote is not."""

    uses_fading: ClassVar[bool] = True
    """Whether the outcome or its cost depends on the fading h, which is otherwise not drawn."""

    obeys_power: ClassVar[bool] = False
    """Whether the power policy sets the transmit scalars; otherwise devices send at full power."""

    accounts_privacy: ClassVar[bool] = False
    """Whether it clips payloads and accounts for the privacy loss of the devices."""

    supports_power_factors: ClassVar[bool] = False
    """Whether devices can send payload groups at different powers (`Group.power_factor`)."""

    supports_intercell: ClassVar[bool] = False
    """Whether it adds the signals of devices of other servers."""

    supports_snr_growth: ClassVar[bool] = False
    """The receiver's noise can fall from round to round (`channel.snr_growth`)."""

    supports_heavy_tails: ClassVar[bool] = False
    """Whether it adds heavy-tailed interference (`Impairments.tails`) to received real numbers."""

    class Settings(settings.Settings):
        """Section `transport` of a scenario."""

        @property
        def has_access_plan(self) -> bool:
            """Whether devices can plan their energy for the channel uses of an update."""
            return False

        @property
        def power_constraint(self) -> str | None:
            """Kind of the power budget without a power policy, as of `PowerPolicy`.

            None if the outcome depends on no power.
            """
            return "peak"

    def __init__(self, settings: Any, parts: Parts) -> None:
        self.settings, self.parts = settings, parts
        self.budget, self.alignment = parts.budget, parts.alignment

    @property
    def uses_empty_slots(self) -> bool:
        """Whether it accounts for slots without transmitters.

        It then gets a payload without rows in these slots.
        """
        return False

    def extend_broadcast(self, broadcast: Broadcast, round: int) -> Broadcast:
        """Add the number of coordinates that devices need of the server to transmit in a round.

        By default they need none. The parameters are those of `Codec.extend_broadcast`.
        """
        return broadcast

    def check_payload(self, payload: Payload) -> None:
        """Raise UserError for a payload that this transport cannot carry."""

    def compute_metrics(self) -> dict[str, Tensor]:
        """Return further results so far: name of `otafl.results.variables` -> Tensor [S]."""
        return {}

    @abstractmethod
    def transmit(self, delivery: Delivery) -> None:
        """Carry the groups of `delivery.uplink` to the server.

        It gives the server its estimate of each group (`Delivery.give`), notes which updates are
        delivered, and adds the cost to `delivery`.

        Parameters
        ----------
        delivery : Delivery
            Signals to send, their channel and limits, and the server's results.
        """

    def get_access_plan(self) -> OrthogonalUplink | None:
        """Return the devices' prior knowledge of an orthogonal uplink; None for other uplinks."""
        return None


def deliver(
    transport: Transport,
    payload: Payload,
    cohort: Cohort,
    channel: ChannelState,
    round: int,
    limits: TransmitLimits = NO_LIMITS,
    turns: int = 1,
) -> tuple[Received, LinkReport]:
    """Deliver the payload of a slot.

    Parameters
    ----------
    transport : Transport
        Scheme that carries the groups on the uplink. Groups on the ideal route arrive without
        error and cost nothing.
    payload : Payload
        Groups of rows [n, *shape].
    cohort : Cohort
        The N rows that take part.
    channel : ChannelState
        Channel of the slot, h complex [S, K, A, B, F].
    round : int
        Number of the slot, on which its draws depend.
    limits : TransmitLimits
        Limits of the transmissions besides the power budget.
    turns : int
        Groups of devices that send one after the other: payload groups of the first, then of the
        second, and so on. A device is in one of them.

    Returns
    -------
    tuple of Received and LinkReport
        What the server gets of each group, and what it cost.
    """
    transport.check_payload(payload)
    apart = "each" in transport.provides
    delivery = Delivery(payload, cohort, channel, round, limits, transport.budget, apart, turns)
    if delivery.uplink:
        transport.transmit(delivery)
    return delivery.get_received(), delivery.report()
