"""Superpose all devices' analogue signals, sent at once on the same symbols, with one noise.

The receiver gets y = sum_k h_k p_k x_k + z once, with one noise z ~ CN(0, sigma^2) a symbol and
antenna. The server's combiner f, |f| = 1, makes one scalar channel f^H h_k of the antennas, with
the noise of one. The payload is real and devices pre-compensate the phase they believe in, so
Re(f^H y) carries all: with c_k = Re(f^H h_k p_k) / sqrt(eta), Re(f^H y) / sqrt(eta) = sum_k c_k x_k
+ n, n of variance N / eta, N = sigma^2 / 2. That is one weighted reduction of real numbers; no
complex array of the payload's size is made. For a weighted mean a device sends K w_k x_k, and
silent devices are left out of K and of the weights, so the estimate is sum_k c_k w_k x_k / W +
n / (K W), W the weight that was on air.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from otafl.core.contracts import Blocks
from otafl.core.problems import Problem, problem
from otafl.transport.base import Transport
from otafl.transport.bent import bent_sum
from otafl.transport.coherent import Coherent
from otafl.transport.delivery import Delivery
from otafl.transport.impairments import NOISE
from otafl.transport.interleaving import Uses, scattered, shuffled
from otafl.transport.on_air import OnAir, Slot, Symbols, normalise
from otafl.transport.segments import Segments, cut, energies
from otafl.transport.superpose import Signal, by_coordinate, squared_norm


class OverTheAir(Coherent):
    accounts_privacy: ClassVar[bool] = True
    hears_neighbours: ClassVar[bool] = True
    hears_tails: ClassVar[bool] = True

    class Settings(Transport.Settings):
        name: Literal["over_the_air"] = "over_the_air"
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
        centre: bool = Field(
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

        def check(self, scenario: Any) -> Iterable[Problem]:
            if self.centre and scenario.privacy.clip is not None:
                text = (
                    "true tells the server the means of payloads, which no noise hides; with "
                    "privacy.clip leave it out"
                )
                yield problem(text, "transport.centre", "privacy.clip")

    def measures(self) -> dict[str, Tensor]:
        return {} if self.setup.privacy is None else self.setup.privacy.measures()

    def kept(self) -> dict[str, Any]:
        """Return also what the accounting keeps."""
        if self.setup.privacy is None:
            return super().kept()
        return {**super().kept(), "privacy": self.setup.privacy.kept()}

    def restore(self, kept: Mapping[str, Any]) -> None:
        super().restore(kept)
        if self.setup.privacy is not None:
            self.setup.privacy.restore(kept["privacy"])

    def carry(self, delivery: Delivery) -> None:
        """Send the groups one after the other: rows x_k [n, P] become normalised symbols, get p_k
        and eta for the scalar channels f^H h_k of their segments, add up in the air, and are
        received as the estimate [S, P]."""
        slot, privacy = self._slot(delivery), self.setup.privacy
        for uses, (index, _, plain) in zip(slot.uses, delivery.uplink, strict=True):
            if privacy is not None:
                plain = privacy.clipped(plain)
            sent = shuffled(plain, index) if slot.mixed else plain
            segments = self._segments(sent, uses, slot)
            symbols = normalise(slot, index, uses, sent, segments, self.settings.centre)
            if privacy is not None:
                symbols = privacy.scaled(symbols)
            channels = self._combine(symbols)
            wanted = self._power(symbols, channels)
            on_air = self._limit(symbols, channels, wanted)
            if privacy is not None:
                privacy.spend(on_air)
            total, exact = self._superpose(on_air)
            estimate, exact, count = self._receive(on_air, total, exact)
            mean, reached, heard = sent.blocks(estimate), on_air.reached(), on_air.heard()
            delivery.give(index, mean, count, reached=reached, heard=heard)
            delivery.tally.error(squared_norm(estimate - exact), squared_norm(exact))
            self._account(on_air, delivery, self._told(symbols))
            if self.setup.save_link:
                self._save(on_air, delivery)

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

    def _superpose(self, on_air: OnAir) -> tuple[Tensor, Tensor]:
        """Sum the signals as they arrive, with one noise and what else there is in the air.

        Returns
        -------
        sum_k c_k x_k + n [S, P], scaled by the receiver, and the error-free sum_k w_k x_k [S, P].
        """
        setup, symbols, sent = self.setup, on_air.symbols, on_air.symbols.sent
        exact, round = None, symbols.slot.round
        if setup.impairments.bends:
            total = bent_sum(on_air, setup.impairments)
        else:
            stream = NOISE / symbols.index
            total, exact = on_air.superposed(setup.streams.normal(stream, round, (sent.reals,)))
        for unwanted in self._unwanted(on_air).values():
            total = total + unwanted * symbols.segments.at_reals(on_air.received_unit, sent.reals)
        if exact is None or on_air.part is not None:
            exact = sent.sum(sent.exact[:, None])[:, 0]
        return total, exact

    def _unwanted(self, on_air: OnAir) -> Blocks:
        """Return what is received besides, name -> [S, P] in the unit of f^H y: signals of other
        servers' devices, and heavy-tailed interference."""
        setup, symbols, found = self.setup, on_air.symbols, {}
        if setup.neighbours is not None:
            found["neighbours"] = setup.neighbours.signal(on_air)
        tails = setup.impairments.tails(symbols.index, symbols.slot.round, symbols.sent.reals)
        if tails is not None:
            found["tails"] = tails
        return found

    def _receive(
        self, on_air: OnAir, total: Tensor, exact: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | Blocks]:
        """Convert what is received, give the means back, and divide each coordinate's sum by the
        weight that knows it.

        Parameters
        ----------
        on_air : the transmission.
        total, exact : sums [S, P], written to.

        Returns
        -------
        The estimate [S, P], the error-free aggregate [S, P], and the weight that arrived, [S] or
        [S, *shape] blocks where there is a mask.
        """
        impairments, symbols, sent = self.setup.impairments, on_air.symbols, on_air.symbols.sent
        if impairments.settings.adc_bits is not None:
            received = on_air.coefficients.eta.sqrt() / on_air.unit
            factor = symbols.segments.at_reals(received, sent.reals)
            heard = symbols.segments.at_reals(on_air.weight > 0, sent.reals)
            total = torch.where(heard, impairments.quantise(total * factor) / factor, 0.0)
        if symbols.means is not None:
            arrived = sent.by_trial(symbols.scale[:, None] * symbols.means * on_air.active_rows)
            total += symbols.segments.at_reals(arrived * on_air.unit, sent.reals)
            whole = sent.by_trial(sent.exact[:, None] * symbols.means)
            exact += symbols.segments.at_reals(whole, sent.reals)
        if sent.mask is None:
            return total, exact, on_air.weight[:, 0]
        return by_coordinate(sent, total, exact, on_air.reached_weight(sent.mask))

    def _save(self, on_air: OnAir, delivery: Delivery) -> None:
        """Report the coefficients, and by segment the energy of what is received besides."""
        symbols, saved = on_air.symbols, delivery.tally.saved
        saved |= on_air.saved(self.setup.save_gram)
        for name, unwanted in self._unwanted(on_air).items():
            energy = energies(replace(symbols.sent, x=unwanted), symbols.segments)
            saved[f"{name}/{symbols.index}"] = energy
