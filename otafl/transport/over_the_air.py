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
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from otafl.core.contracts import Blocks, Coefficients, Link, combined
from otafl.core.problems import Problem, problem
from otafl.power.scalars import mmse_scaled
from otafl.transport.base import Counts, LinkSetup, Transport
from otafl.transport.bent import bent_sum
from otafl.transport.delivery import Delivery
from otafl.transport.impairments import NOISE
from otafl.transport.interleaving import Uses, in_order, scattered, shuffled
from otafl.transport.limits import Bounds
from otafl.transport.on_air import OnAir, ScalarChannels, Slot, Symbols, normalise
from otafl.transport.segments import Segments, cut
from otafl.transport.superpose import Signal, divide, masked_weight, squared_norm


class OverTheAir(Transport):
    lasting: ClassVar = ("_policy_state",)
    gives: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    obeys_power: ClassVar[bool] = True
    accounts_privacy: ClassVar[bool] = True

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

    def __init__(self, settings: Settings, setup: LinkSetup) -> None:
        super().__init__(settings, setup)
        self._policy_state = setup.policy.prepare(setup.statistics, setup.policy_hyper)

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
            self._account(on_air, delivery)

    def _slot(self, delivery: Delivery) -> Slot:
        """Lay out the slot: channel uses, the channel's cells, budgets, limits, pilots."""
        setup, channel, round = self.setup, delivery.channel, delivery.round
        signals = [sent for _, _, sent in delivery.uplink]
        halves = 2 if self.settings.quadrature else 1
        lengths = [-(-sent.reals // halves) for sent in signals]
        symbols = max(1, sum(lengths))
        h, root = channel.over(symbols), channel.gain.sqrt()[:, :, None, None]
        h_hat = setup.csi.estimate(h, channel.gain, round)
        scaled = root * h.flatten(3)
        budget = setup.power_budget(delivery.limits)
        if self.settings.snr_convention == "total_energy":
            # a bound on the energy of the payload is spread over the symbols that a device sends
            sends = torch.zeros_like(budget)
            for sent, length in zip(signals, lengths, strict=True):
                sends = sends + length * sent.grid(torch.ones_like(sent.weight))
            budget = budget / sends.clamp_min(1.0)
        pilots = float(setup.csi.pilot_symbols * h.shape[3])
        delivery.tally.add(side=signals[0].cohort.rows_of * pilots)
        # over one cell it would change nothing but the noise's order
        mixed = self.settings.interleave and h[0, 0, 0].numel() > 1
        slot = Slot(
            round=round,
            h=scaled,
            h_hat=scaled if h_hat is h else root * h_hat.flatten(3),
            stops=channel.stops(h, symbols),
            gain=channel.gain,
            budget=budget,
            symbols=symbols,
            bounds=Bounds(delivery.limits, symbols),
            uses=scattered(lengths) if mixed else in_order(lengths),
            mixed=mixed,
        )
        if setup.privacy is None:
            return slot
        sends = torch.stack([sent.on_air() for sent in signals]).any(0)
        return setup.privacy.limit(slot, sends, delivery.limits)

    def _segments(self, sent: Signal, uses: Uses, slot: Slot) -> Segments:
        """Cut a group [n, P] where the channel changes, and where the normalisation does."""
        blockwise = self.settings.normalise == "block"
        return cut(sent, uses, slot.stops, blockwise, self.settings.quadrature)

    def _combine(self, symbols: Symbols) -> ScalarChannels:
        """Combine the server's antennas: f [S, Q, A] makes f^H h [S, Q, K] of the channels
        [S, K, A, C] of the Q segments' cells. A phase that is left after pre-compensation turns the
        true one."""
        setup, slot, cells = self.setup, symbols.slot, list(symbols.segments.cells)
        h = slot.h[..., cells].permute(0, 3, 1, 2)  # [S, Q, K, A]
        h_hat = h if slot.h_hat is slot.h else slot.h_hat[..., cells].permute(0, 3, 1, 2)
        sends = slot.bounds.able(symbols.sent.on_air())
        combiner = setup.receiver.combine(h_hat, sends, slot.budget)
        scalar = combined(combiner, h)
        believed = scalar if h_hat is h else combined(combiner, h_hat)
        phases = setup.impairments.phases(sends.shape[1], slot.round)
        if phases is not None:
            scalar = scalar * torch.polar(torch.ones_like(phases), phases)[:, None]
        noise = setup.impairments.noise(combiner, slot.round)
        return ScalarChannels(sends, scalar, believed, noise)

    def _power(self, symbols: Symbols, channels: ScalarChannels) -> Coefficients:
        """Ask the power policy for the scalars p [S, Q, K] and eta [S, Q]. It sees the estimate of
        the scalar channels, and the mean symbol powers m [S, Q, K], which are side information."""
        setup, slot = self.setup, symbols.slot
        link = Link(
            h=channels.h_hat,
            gain=slot.gain,
            budget=slot.budget,
            power=slot.bounds.powers(symbols.power),
            noise=setup.impairments.known_noise,
            sends=channels.sends,
            linear=symbols.sent.linear,
            hyper=setup.policy_hyper,
            antennas=slot.h.shape[2],
            variation=symbols.variation if setup.policy.wants_variation else None,
            energy=slot.bounds.energy,
            lengths=symbols.lengths,
            payload=slot.symbols,
        )
        self._policy_state, wanted = setup.policy.coefficients(self._policy_state, link)
        return mmse_scaled(wanted, link) if setup.receiver.scale == "mmse" else wanted

    def _limit(self, symbols: Symbols, channels: ScalarChannels, wanted: Coefficients) -> OnAir:
        """Cut the p [S, Q, K] that the policy wants to what devices can send: by the energy that
        they have left, and by their crash."""
        slot = symbols.slot
        coefficients = slot.bounds.cut(wanted, channels.sends, symbols.energy)
        part = slot.bounds.sent_part(symbols.sent, symbols.segments, symbols.uses)
        return OnAir(symbols, channels, coefficients, part)

    def _superpose(self, on_air: OnAir) -> tuple[Tensor, Tensor]:
        """Sum the signals as they arrive, with one noise.

        Returns
        -------
        sum_k c_k x_k + n [S, P], scaled by the receiver, and the error-free sum_k w_k x_k [S, P].
        """
        setup, symbols, sent = self.setup, on_air.symbols, on_air.symbols.sent
        if setup.impairments.bends:
            total = bent_sum(on_air, setup.impairments)
        else:
            stream, round = NOISE / symbols.index, symbols.slot.round
            total, exact = on_air.superposed(setup.streams.normal(stream, round, (sent.reals,)))
            if on_air.part is None:
                return total, exact
        return total, sent.sum(sent.exact[:, None])[:, 0]

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
        reached = on_air.reached_weight(sent.mask)
        if sent.linear:
            total, exact = divide(total, reached), divide(exact, masked_weight(sent))
        return total, exact, sent.blocks(reached)

    def _account(self, on_air: OnAir, delivery: Delivery) -> None:
        """Add up channel uses, energy, and side information: for every device and normalised
        stretch its mean power, the mean that was taken off, and what varies."""
        setup, tally, symbols = self.setup, delivery.tally, on_air.symbols
        sent, slot, sends = symbols.sent, symbols.slot, on_air.coefficients.on_air
        energy = on_air.coefficients.p.abs().square() * on_air.energy
        uses = sends.mT.to(energy.dtype) @ symbols.lengths
        if on_air.part is not None:
            uses = (sends * on_air.part.symbols).sum(1)
        spent, counts = energy.sum(1), on_air.coefficients.active.any(1)
        senders, length = sent.cohort.rows_of, symbols.segments.symbols
        stretches = symbols.segments.scopes[-1] + 1
        power_told = setup.privacy is None  # else it follows from the norm that all clip to
        told = power_told + (symbols.means is not None) + setup.policy.wants_variation
        side = senders * float(stretches * told)
        tally.add(symbols=(senders > 0) * float(length), energy=spent, sent=uses, side=side)
        tally.note(on_air=sends.any(1))
        delivery.arrive(sent, None if bool(counts.any(1).all()) else on_air.weight.amax(1))
        if setup.save_link:
            tally.saved |= on_air.saved(setup.save_gram)
        slot.bounds.spend(spent)
