"""Send updates as analogue symbols that add up in the air, whatever carries them there.

The receiver gets y = sum_k h_k p_k x_k + z once, with one noise z ~ CN(0, sigma^2) a symbol and
antenna. The server's combiner f, |f| = 1, makes one scalar channel f^H h_k of the antennas, with
the noise of one. The payload is real and devices pre-compensate the phase they believe in, so
Re(f^H y) carries all: with c_k = Re(f^H h_k p_k) / sqrt(eta), Re(f^H y) / sqrt(eta) = sum_k c_k x_k
+ n, n of variance N / eta, N = sigma^2 / 2. For a weighted mean a device sends K w_k x_k, and
silent devices are left out of K and of the weights, so the estimate is sum_k c_k w_k x_k / W +
n / (K W), W the weight that was on air.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from otafl.core.contracts import Blocks
from otafl.core.settings import Reveals
from otafl.uplink.base import Transport
from otafl.uplink.coherent.coherent import Coherent
from otafl.uplink.delivery import Delivery
from otafl.uplink.interleaving import Uses, scattered, shuffled
from otafl.uplink.on_air import OnAir, Slot, Symbols, normalise
from otafl.uplink.segments import Segments, cut
from otafl.uplink.superpose import Signal, by_coordinate, squared_norm

Sums = tuple[OnAir, Tensor, Tensor]
"""A group's transmission, the sum [S, P] that the server gets, scaled, and the error-free sum."""


class Analog(Coherent):
    """Estimate sums of rows that are sent as they are, normalised."""

    class Settings(Transport.Settings):
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
        centre: Annotated[bool, Reveals(True, False, "the means of payloads")] = Field(
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

        @model_validator(mode="after")
        def _one_stretch(self) -> Self:
            if self.quadrature and self.normalise == "block":
                raise ValueError(
                    "quadrature pairs reals of the whole payload; normalise: payload goes with it"
                )
            if self.interleave and self.normalise == "block":
                raise ValueError(
                    "interleave: true mixes the symbols of all blocks, so that none has a stretch "
                    "of its own; normalise: payload goes with it"
                )
            return self

    def carry(self, delivery: Delivery) -> None:
        """Send the groups: rows x_k [n, P] become normalised symbols, get p_k and eta for the
        scalar channels f^H h_k of their segments, add up in the air, and are received as the
        estimate [S, P]."""
        slot = self._slot(delivery)
        for on_air, total, exact in self._superposed(self._transmitted(slot, delivery), delivery):
            sent, index = on_air.symbols.sent, on_air.symbols.index
            estimate, exact, count = self._receive(on_air, total, exact)
            mean, reached, heard = sent.blocks(estimate), on_air.reached(), on_air.heard()
            delivery.give(index, mean, count, reached=reached, heard=heard)
            delivery.tally.error(squared_norm(estimate - exact), squared_norm(exact))
            if self.setup.save_link:
                self._save(on_air, delivery)

    @abstractmethod
    def _superposed(self, sent: Iterator[OnAir], delivery: Delivery) -> Iterator[Sums]:
        """Superpose groups in the air, noise included, and yield each with its sums."""

    def _transmitted(self, slot: Slot, delivery: Delivery) -> Iterator[OnAir]:
        """Yield what is on air of one group after the other, and account for it."""
        privacy = self.setup.privacy
        for uses, (index, _, plain) in zip(slot.uses, delivery.uplink, strict=True):
            if privacy is not None:
                plain = privacy.clipped(plain)
            sent = shuffled(plain, index) if slot.mixed else plain
            segments = self._segments(sent, uses, slot)
            symbols = normalise(slot, index, uses, sent, segments, self.settings.centre)
            if privacy is not None:
                symbols = privacy.scaled(symbols)
            channels = self._combine(symbols)
            on_air = self._limit(symbols, channels, self._power(symbols, channels))
            if privacy is not None:
                privacy.spend(on_air)
            self._account(on_air, delivery, self._told(symbols))
            yield on_air

    def _slot(self, delivery: Delivery) -> Slot:
        """Lay out the slot, and where it is said spread a bound on the payload's energy over the
        symbols that a device sends, and interleave them."""
        signals = [sent for _, _, sent in delivery.uplink]
        halves = 2 if self.settings.quadrature else 1
        lengths = [-(-sent.reals // halves) for sent in signals]
        slot = self._laid_out(delivery, lengths)
        if self.settings.snr_convention == "total_energy":
            sends = torch.zeros_like(slot.budget)
            for sent, length in zip(signals, lengths, strict=True):
                sends = sends + length * sent.grid(torch.ones_like(sent.weight))
            slot = replace(slot, budget=slot.budget / sends.clamp_min(1.0))
        # over one cell it would change nothing but the noise's order
        if self.settings.interleave and slot.h.shape[3] > 1:
            slot = replace(slot, uses=scattered(lengths), mixed=True)
        if self.setup.privacy is None:
            return slot
        sends = torch.stack([sent.on_air() for sent in signals]).any(0)
        return self.setup.privacy.limit(slot, sends, delivery.limits)

    def _segments(self, sent: Signal, uses: Uses, slot: Slot) -> Segments:
        """Cut a group [n, P] where the channel changes, and where the normalisation does."""
        blockwise = self.settings.normalise == "block"
        return cut(sent, uses, slot.stops, blockwise, self.settings.quadrature)

    def _told(self, symbols: Symbols) -> int:
        """Count what a device tells: for every normalised stretch its mean power, the mean that was
        taken off, and what varies."""
        stretches = symbols.segments.scopes[-1] + 1
        power = self.setup.privacy is None  # else it follows from the norm that all clip to
        told = power + (symbols.means is not None) + self.setup.policy.wants_variation
        return stretches * told

    def _receive(
        self, on_air: OnAir, total: Tensor, exact: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | Blocks]:
        """Give the means back, and divide each coordinate's sum by the weight that knows it.

        Parameters
        ----------
        on_air : the transmission.
        total, exact : sums [S, P], written to.

        Returns
        -------
        The estimate [S, P], the error-free aggregate [S, P], and the weight that arrived, [S] or
        [S, *shape] blocks where there is a mask.
        """
        symbols, sent = on_air.symbols, on_air.symbols.sent
        if symbols.means is not None:
            arrived = sent.by_trial(symbols.scale[:, None] * symbols.means * on_air.active_rows)
            total += symbols.segments.at_reals(arrived * on_air.unit, sent.reals)
            whole = sent.by_trial(sent.exact[:, None] * symbols.means)
            exact += symbols.segments.at_reals(whole, sent.reals)
        if sent.mask is None:
            return total, exact, on_air.weight[:, 0]
        return by_coordinate(sent, total, exact, on_air.reached_weight(sent.mask))

    def _save(self, on_air: OnAir, delivery: Delivery) -> None:
        """Report the coefficients."""
        delivery.tally.saved |= on_air.saved(self.setup.save_gram)
