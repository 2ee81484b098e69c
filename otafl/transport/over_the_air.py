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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from otafl.core.contracts import (
    NO_LIMITS,
    Blocks,
    ChannelState,
    Coefficients,
    Cohort,
    Limits,
    Link,
    LinkReport,
    Payload,
    Received,
    combined,
)
from otafl.power.scalars import mmse_scaled
from otafl.transport.base import Counts, LinkSetup, Transport
from otafl.transport.bent import bent_sum
from otafl.transport.impairments import NOISE
from otafl.transport.limits import Bounds
from otafl.transport.on_air import (
    OnAir,
    ScalarChannels,
    Symbols,
    normalise,
    of_means,
    reached_weight,
    saved,
    superposed,
    transmitted,
    variation,
)
from otafl.transport.report import Gathered, Tally
from otafl.transport.segments import Segments, cut
from otafl.transport.superpose import (
    Signal,
    divide,
    error_free,
    masked_weight,
    signal,
    squared_norm,
)


@dataclass
class Slot:
    """Hold what the groups of a payload share, large-scale gain included in the channel.

    h, h_hat: [S, K, A, C] true and estimated, C cells flattened over (B, F); one tensor where the
    estimate is the truth. stops: the channel use after which each cell ends. gain,
    budget: [S, K]. symbols: channel uses of the slot. bounds: what limits it. start: channel uses
    of the groups before the one that is sent.
    """

    round: int
    h: Tensor
    h_hat: Tensor
    stops: list[int]
    gain: Tensor
    budget: Tensor
    symbols: int
    bounds: Bounds
    start: int = 0


class OverTheAir(Transport):
    gives: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"

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

        @model_validator(mode="after")
        def _one_stretch(self) -> Self:
            if self.quadrature and self.normalise == "block":
                raise ValueError(
                    "quadrature pairs reals of the whole payload; normalise: payload goes with it"
                )
            return self

    def __init__(self, settings: Settings, setup: LinkSetup) -> None:
        super().__init__(settings, setup)
        self._policy_state = setup.policy.prepare(setup.statistics, setup.policy_hyper)

    def deliver(
        self,
        payload: Payload,
        cohort: Cohort,
        channel: ChannelState,
        round: int,
        limits: Limits = NO_LIMITS,
    ) -> tuple[Received, LinkReport]:
        tally, gathered = Tally(self.setup.budget, cohort.population), Gathered()
        signals = [signal(group, cohort) for group in payload]
        routed = list(zip(payload, signals, strict=True))
        uplink = [sent for group, sent in routed if group.route == "uplink"]
        slot = self._slot(uplink, channel, round, limits, tally)
        for index, (group, sent) in enumerate(routed):
            if group.route == "ideal":
                gathered.add(*error_free(sent))
                tally.hear_freely(sent.on_air())
                continue
            segments = self._segments(sent, slot)
            symbols = normalise(sent, segments, self.settings.centre)
            channels = self._combine(symbols, slot)
            wanted = self._power(symbols, channels, slot)
            on_air = self._limit(symbols, channels, wanted, slot)
            estimate, exact = self._superpose(on_air, slot, index)
            estimate, exact = self._receive(on_air, estimate, exact, slot, gathered)
            self._account(on_air, estimate, exact, slot, index, tally)
        return gathered.received(), tally.report()

    def _slot(
        self,
        uplink: Sequence[Signal],
        channel: ChannelState,
        round: int,
        limits: Limits,
        tally: Tally,
    ) -> Slot:
        """Lay out the slot of the uplink groups: channel uses, cells, budgets, limits, pilots.

        Parameters
        ----------
        uplink : signals [n, P] of the groups that are sent in it.
        channel : h [S, K, A, B, F].
        """
        halves = 2 if self.settings.quadrature else 1
        lengths = [-(-sent.reals // halves) for sent in uplink]
        symbols = max(1, sum(lengths))
        h, root = channel.over(symbols), channel.gain.sqrt()[:, :, None, None]
        h_hat = self.setup.csi.estimate(h, channel.gain, round)
        scaled = root * h.flatten(3)
        budget = self.setup.budget.budget
        if limits.power is not None:
            budget = budget * limits.power
        if self.settings.snr_convention == "total_energy":
            # a bound on the energy of the payload is spread over the symbols that a device sends
            sends = torch.zeros_like(budget)
            for sent, length in zip(uplink, lengths, strict=True):
                sends = sends + length * sent.grid(torch.ones_like(sent.weight))
            budget = budget / sends.clamp_min(1.0)
        if uplink:
            pilots = float(self.setup.csi.pilot_symbols * h.shape[3])
            tally.side_symbols(uplink[0].cohort.rows_of * pilots)
        return Slot(
            round=round,
            h=scaled,
            h_hat=scaled if h_hat is h else root * h_hat.flatten(3),
            stops=channel.stops(h, symbols),
            gain=channel.gain,
            budget=budget,
            symbols=symbols,
            bounds=Bounds(limits, symbols),
        )

    def _segments(self, sent: Signal, slot: Slot) -> Segments:
        """Cut a group [n, P] where the channel changes, and where the normalisation does."""
        blockwise = self.settings.normalise == "block"
        return cut(sent, slot.start, slot.stops, blockwise, self.settings.quadrature)

    def _combine(self, symbols: Symbols, slot: Slot) -> ScalarChannels:
        """Combine the server's antennas: f [S, Q, A] makes f^H h [S, Q, K] of the channels of the
        segments' cells. A phase that is left after pre-compensation turns the true one.

        Parameters
        ----------
        symbols : of the group, Q segments.
        slot : with h, h_hat [S, K, A, C].
        """
        setup, cells = self.setup, list(symbols.segments.cells)
        h = slot.h[..., cells].permute(0, 3, 1, 2)  # [S, Q, K, A]
        h_hat = h if slot.h_hat is slot.h else slot.h_hat[..., cells].permute(0, 3, 1, 2)
        sends = slot.bounds.able(symbols.sends)
        combiner = setup.receiver.combine(h_hat, sends, slot.budget)
        scalar = combined(combiner, h)
        believed = scalar if h_hat is h else combined(combiner, h_hat)
        phases = setup.impairments.phases(sends.shape[1], slot.round)
        if phases is not None:
            scalar = scalar * torch.polar(torch.ones_like(phases), phases)[:, None]
        noise = setup.impairments.noise(combiner, slot.round)
        return ScalarChannels(sends, scalar, believed, noise, h.shape[3])

    def _power(self, symbols: Symbols, channels: ScalarChannels, slot: Slot) -> Coefficients:
        """Ask the power policy for the scalars p [S, Q, K] and eta [S, Q].

        Parameters
        ----------
        symbols : with the mean symbol powers m [S, Q, K], which are side information.
        channels : with the estimate of the scalar channels [S, Q, K].
        slot : with the budgets [S, K].
        """
        setup, bounds = self.setup, slot.bounds
        link = Link(
            h=channels.h_hat,
            gain=slot.gain,
            budget=slot.budget,
            power=bounds.powers(symbols.power),
            noise=setup.impairments.known_noise,
            sends=channels.sends,
            linear=symbols.sent.linear,
            hyper=setup.policy_hyper,
            antennas=channels.antennas,
            variation=variation(symbols) if setup.policy.wants_variation else None,
            energy=bounds.energy,
            lengths=symbols.lengths,
            payload=slot.symbols,
        )
        self._policy_state, wanted = setup.policy.coefficients(self._policy_state, link)
        return mmse_scaled(wanted, link) if setup.receiver.scale == "mmse" else wanted

    def _limit(
        self, symbols: Symbols, channels: ScalarChannels, wanted: Coefficients, slot: Slot
    ) -> OnAir:
        """Cut what the policy wants to what devices can send: by the energy that they have left,
        and by their crash.

        Parameters
        ----------
        symbols, channels : of the group, Q segments.
        wanted : p [S, Q, K], eta [S, Q].
        slot : with its bounds.
        """
        coefficients = slot.bounds.cut(wanted, channels.sends, symbols.energy)
        part = slot.bounds.sent_part(symbols.sent, symbols.segments, slot.start)
        return transmitted(symbols, channels, coefficients, part)

    def _superpose(self, on_air: OnAir, slot: Slot, index: int) -> tuple[Tensor, Tensor]:
        """Sum the signals as they arrive, with one noise.

        Parameters
        ----------
        on_air : the transmission of rows [n, P].
        slot : with its round.
        index : the group's, which has a noise of its own.

        Returns
        -------
        sum_k c_k x_k + n [S, P], scaled by the receiver, and the error-free sum_k w_k x_k [S, P].
        """
        setup, sent = self.setup, on_air.symbols.sent
        if setup.impairments.bends:
            estimate = bent_sum(on_air, slot.budget, setup.impairments, slot.round, index)
        else:
            noise = setup.streams.normal(NOISE / index, slot.round, (sent.reals,))
            estimate, exact = superposed(on_air, noise)
            if on_air.part is None:
                return estimate, exact
        return estimate, sent.sum(sent.exact[:, None])[:, 0]

    def _receive(
        self, on_air: OnAir, estimate: Tensor, exact: Tensor, slot: Slot, gathered: Gathered
    ) -> tuple[Tensor, Tensor]:
        """Convert what is received, give the means back, and divide each coordinate's sum by the
        weight that knows it.

        Parameters
        ----------
        on_air : the transmission.
        estimate, exact : sums [S, P], written to.

        Returns
        -------
        What the server gets and the error-free aggregate, [S, P].
        """
        setup, symbols, sent = self.setup, on_air.symbols, on_air.symbols.sent
        if setup.impairments.settings.adc_bits is not None:
            received = on_air.coefficients.eta.sqrt() / on_air.unit
            factor = symbols.segments.at_reals(received, sent.reals)
            estimate = setup.impairments.quantise(estimate * factor) / factor
        if symbols.means is not None:
            estimate += of_means(symbols, symbols.scale, on_air)
            exact += of_means(symbols, sent.exact, None)
        count: Tensor | Blocks = on_air.weight[:, 0]
        if sent.mask is not None:
            reached = reached_weight(on_air)
            count = sent.blocks(reached)
            if sent.linear:
                estimate, exact = divide(estimate, reached), divide(exact, masked_weight(sent))
        gathered.add(sent.blocks(estimate), count)
        all_silent = setup.policy.may_be_silent or slot.bounds.energy is not None
        gathered.arrived(sent, on_air.weight.amax(1) if all_silent else None)
        return estimate, exact

    def _account(
        self,
        on_air: OnAir,
        estimate: Tensor,
        exact: Tensor,
        slot: Slot,
        index: int,
        tally: Tally,
    ) -> None:
        """Add up errors, channel uses, energy, and side information: for every device and
        normalised stretch its mean power, the mean that was taken off, and what varies.

        Parameters
        ----------
        on_air : the transmission.
        estimate, exact : [S, P].
        slot : passes over the group's channel uses and energy.
        """
        symbols, active = on_air.symbols, on_air.coefficients.active
        tally.error(squared_norm(estimate - exact), squared_norm(exact))
        energy = on_air.coefficients.p.abs().square() * on_air.energy
        uses = active.mT.to(energy.dtype) @ symbols.lengths
        if on_air.part is not None:
            uses = (active * on_air.part.symbols).sum(1)
        spent, on, complete = energy.sum(1), active.any(1), slot.bounds.complete
        senders = symbols.sent.cohort.rows_of
        tally.slot((senders > 0) * float(symbols.segments.symbols))
        tally.radiate(spent, uses, on)
        tally.hear(symbols.sends, on if complete is None else on & complete)
        stretches = symbols.segments.scopes[-1] + 1
        told = 1 + (symbols.means is not None) + self.setup.policy.wants_variation
        tally.side_symbols(senders * float(stretches * told))
        if self.setup.save_link:
            tally.saved |= saved(index, on_air, self.setup.save_gram)
        slot.bounds.spend(spent)
        slot.start += symbols.segments.symbols
