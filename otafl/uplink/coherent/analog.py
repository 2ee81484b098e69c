"""Lay out and normalise updates that are sent as analogue symbols, whatever carries them.

The receiver gets y = sum_k h_k p_k x_k + z once, with one noise z ~ CN(0, sigma^2) a symbol and
antenna. The server's combiner f, |f| = 1, makes one scalar channel f^H h_k of the antennas, with
the noise of one. The payload is real and devices pre-compensate the phase they believe in, so
Re(f^H y) carries all: with c_k = Re(f^H h_k p_k) / sqrt(eta), Re(f^H y) / sqrt(eta) = sum_k c_k x_k
+ n, n of variance N / eta, N = sigma^2 / 2. For a weighted mean a device sends K w_k x_k, and
silent devices are left out of K and of the weights, so the estimate is sum_k c_k w_k x_k / W +
n / (K W), W the weight that was on air.
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
    """What the schemes have in common that send reals as they are, normalised."""

    normalise: Literal["payload", "block"] = Field(
        "payload",
        description="one transmit scalar for a device's whole payload, or one for each block; "
        "the mean symbol powers it depends on are side information and counted",
    )
    snr_convention: Literal["per_symbol", "total_energy"] = Field(
        "per_symbol",
        description="the power budget bounds the mean power of a symbol, or the energy of the "
        "whole payload (FedRLR's literal definition)",
    )
    quadrature: bool = Field(
        False,
        description="two reals a symbol, one on each quadrature carrier, in place of one",
    )
    centre: Annotated[bool, DataDisclosure(True, False, "the means of payloads")] = Field(
        False,
        description="each device sends deviations from the mean of its normalised stretch; "
        "the means are side information. Payloads of which devices know different parts go as "
        "they are",
    )
    interleave: bool = Field(
        False,
        description="over a channel of several cells (coherence blocks, sub-carrier groups), "
        "symbols are sent in a fixed pseudo-random order, so that each layer's error is spread "
        "over all fades; else they fill the cells in order",
    )

    def find_conflicts(self) -> Iterator[str]:
        if self.quadrature and self.normalise == "block":
            yield "quadrature pairs reals of the whole payload; normalise: payload goes with it"
        if self.interleave and self.normalise == "block":
            yield (
                "interleave: true mixes the symbols of all blocks, so that none has a stretch "
                "of its own; normalise: payload goes with it"
            )


def lay_out_reals(delivery: Delivery, settings: AnalogSettings, csi: Csi) -> Slot:
    """Lay out the slot, and where it is said spread a bound on the payload's energy over the
    symbols that a device sends, and interleave them."""
    signals = delivery.uplink
    halves = 2 if settings.quadrature else 1
    lengths = [-(-sent.num_coordinates // halves) for sent in signals]
    slot = lay_out(delivery, lengths, csi, delivery.limits)
    if settings.snr_convention == "total_energy":
        sends = torch.zeros_like(slot.budget)
        for sent, length in zip(signals, lengths, strict=True):
            sends = sends + length * sent.grid(torch.ones_like(sent.weight))
        slot = replace(slot, budget=slot.budget / sends.clamp_min(1.0))
    # over one cell it would change nothing but the noise's order
    if settings.interleave and slot.h.shape[3] > 1:
        slot = replace(slot, uses=scatter_uses(lengths), interleaved=True)
    return slot


def normalise_reals(
    slot: Slot, uses: Uses, rows: Signal, settings: AnalogSettings
) -> tuple[Signal, Normalisation]:
    """Normalise the symbols of a group [n, P], cut where the channel changes and where the
    normalisation does, in the order in which they are sent."""
    sent = interleave(rows) if slot.interleaved else rows
    blockwise = settings.normalise == "block"
    segments = cut(sent, uses, slot.cell_stops, blockwise, settings.quadrature)
    return normalise(sent, segments, settings.centre)


def count_scalars(normalised: Normalisation, power: bool, variation: bool) -> int:
    """Count what a device tells: for every normalised stretch its mean power and what varies, each
    where it is told, and the mean that was taken off."""
    stretches = normalised.segments.scopes[-1] + 1
    return stretches * (power + (normalised.means is not None) + variation)
