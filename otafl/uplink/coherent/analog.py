"""Layout and normalisation of updates that are sent as analogue symbols.

The receiver gets y = sum_k h_k p_k x_k + z, with noise z ~ CN(0, sigma^2) for each symbol and
antenna. The combiner f, |f| = 1, turns the antennas into one scalar channel f^H h_k with the noise
of one antenna. The payload is real and devices pre-compensate the estimated phase, so Re(f^H y)
contains all of it. With the effective gains c_k = Re(f^H h_k p_k) / sqrt(eta),

    Re(f^H y) / sqrt(eta) = sum_k c_k x_k + n,

where n has variance N / eta, N = sigma^2 / 2. For a weighted mean, a device sends K w_k x_k. Silent
devices do not count in K and in the weights. The estimate is sum_k c_k w_k x_k / W + n / (K W),
with W the weight on air.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field

from otafl.core.settings import DataDisclosure
from otafl.csi.base import Csi
from otafl.uplink.base import Transport
from otafl.uplink.delivery import Delivery
from otafl.uplink.interleaving import Uses, interleave, scatter_uses
from otafl.uplink.layout import Slot, lay_out
from otafl.uplink.normalise import Normalisation, normalise
from otafl.uplink.segments import cut
from otafl.uplink.signal import Signal


class AnalogSettings(Transport.Settings):
    """Common settings of the transports that send normalised real values as they are."""

    normalise: Literal["payload", "block"] = Field(
        "payload",
        description="scope of a transmit scalar: a device's whole payload, or each tensor; the "
        "mean symbol powers that it depends on are side information and counted",
    )
    snr_convention: Literal["per_symbol", "total_energy"] = Field(
        "per_symbol",
        description="meaning of the power budget: bound on the mean power of a symbol, or on the "
        "energy of the whole payload (FedRLR's literal definition)",
    )
    quadrature: bool = Field(
        False,
        description="two real numbers per symbol, one on each quadrature carrier, instead of one",
    )
    centre: Annotated[bool, DataDisclosure(True, False, "the means of payloads")] = Field(
        False,
        description="whether each device sends deviations from the mean of its normalised "
        "stretch; the means are side information. Payloads of which devices have different parts "
        "are not centred",
    )
    interleave: bool = Field(
        False,
        description="fixed pseudo-random order of the symbols over the channel's cells (coherence "
        "blocks, sub-carrier groups), so that each layer's error is spread over all fades; by "
        "default symbols fill the cells in order",
    )

    def find_conflicts(self) -> Iterator[str]:
        if self.quadrature and self.normalise == "block":
            yield (
                "quadrature: true pairs real numbers of the whole payload and needs normalise: "
                "payload, got normalise: block"
            )
        if self.interleave and self.normalise == "block":
            yield (
                "interleave: true mixes the symbols of all tensors and needs normalise: payload, "
                "got normalise: block"
            )


def lay_out_reals(delivery: Delivery, settings: AnalogSettings, csi: Csi) -> Slot:
    """Lay out the slot of a delivery by the settings.

    Parameters
    ----------
    delivery : Delivery
        Signals to send.
    settings : AnalogSettings
        A budget on the payload's total energy is spread over the symbols that a device sends, and
        symbols are interleaved if the settings ask for it.
    csi : Csi
        Channel estimates.

    Returns
    -------
    Slot
        The slot.
    """
    signals = delivery.uplink
    halves = 2 if settings.quadrature else 1
    lengths = [-(-sent.num_coordinates // halves) for sent in signals]
    slot = lay_out(delivery, lengths, csi, delivery.limits, spread=settings.interleave)
    if settings.snr_convention == "total_energy":
        sends = torch.zeros_like(slot.budget)
        for sent, length in zip(signals, lengths, strict=True):
            sends = sends + length * sent.grid(torch.ones_like(sent.weight))
        slot = replace(slot, budget=slot.budget / sends.clamp_min(1.0))
    # over one cell it would change only the noise's order
    if settings.interleave and slot.h.shape[3] > 1:
        slot = replace(slot, uses=scatter_uses(lengths), interleaved=True)
    return slot


def normalise_reals(
    slot: Slot, uses: Uses, rows: Signal, settings: AnalogSettings
) -> tuple[Signal, Normalisation]:
    """Normalise the symbols of a group [n, P], in the order in which they are sent.

    Parameters
    ----------
    slot : Slot
        Cells of the channel.
    uses : Uses
        Channel uses of the group.
    rows : Signal
        Rows of the group, [n, P].
    settings : AnalogSettings
        Scope of the normalisation.

    Returns
    -------
    tuple of Signal and Normalisation
        Symbols to send, and their segments, energies and powers. A segment ends where the channel
        changes or the normalised stretch ends.
    """
    sent = interleave(rows) if slot.interleaved else rows
    blockwise = settings.normalise == "block"
    segments = cut(sent, uses, slot.cell_stops, blockwise, settings.quadrature)
    return normalise(sent, segments, settings.centre)


def count_scalars(normalised: Normalisation, power: bool, variation: bool) -> int:
    """Count the real numbers of side information of a device.

    Parameters
    ----------
    normalised : Normalisation
        Its stretches, and the subtracted means.
    power : bool
        Whether the mean power of each stretch is reported.
    variation : bool
        Whether the variation of the symbols over devices is reported.

    Returns
    -------
    int
        Number of real numbers.
    """
    stretches = normalised.segments.scopes[-1] + 1
    return stretches * (power + (normalised.means is not None) + variation)
