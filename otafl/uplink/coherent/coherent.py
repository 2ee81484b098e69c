"""Send at once on the same channel uses, each device with the scalar that a power policy gives it.

This is what transports share whose signals add up in phase: the layout of a slot, the scalar
channels behind the server's combiner, what devices send with and what that costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from otafl.core.contracts import Coefficients, Link, combined
from otafl.power.scalars import mmse_scaled
from otafl.uplink.base import Counts, LinkSetup, Transport
from otafl.uplink.delivery import Delivery
from otafl.uplink.interleaving import in_order
from otafl.uplink.limits import Bounds
from otafl.uplink.on_air import OnAir, ScalarChannels, Slot, Symbols


class Coherent(Transport):
    """Align the devices' phases and amplitudes as the power policy says."""

    lasting: ClassVar[tuple[str, ...]] = ("_policy_state",)
    gives: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    obeys_power: ClassVar[bool] = True

    def __init__(self, settings: Transport.Settings, setup: LinkSetup) -> None:
        super().__init__(settings, setup)
        self._policy_state = setup.policy.prepare(setup.statistics, setup.policy_hyper)

    def _laid_out(self, delivery: Delivery, lengths: Sequence[int], each: int = 1) -> Slot:
        """Lay out the slot: channel uses, the channel's cells, budgets, limits, pilots.

        Parameters
        ----------
        lengths : symbols of the groups, which are sent one after the other.
        each : channel uses of a symbol. They have the fade of the first of them.
        """
        setup, channel, round = self.setup, delivery.channel, delivery.round
        symbols = max(1, sum(lengths))
        h, root = channel.over(each * symbols), channel.gain.sqrt()[:, :, None, None]
        h_hat = setup.csi.estimate(h, channel.gain, round)
        scaled = root * h.flatten(3)
        limits = delivery.limits
        if limits.per_symbol is not None and each > 1:
            limits = replace(limits, per_symbol=each * limits.per_symbol)
        pilots = float(setup.csi.pilot_symbols * h.shape[3])
        delivery.tally.add(side=delivery.uplink[0][2].cohort.rows_of * pilots)
        return Slot(
            round=round,
            h=scaled,
            h_hat=scaled if h_hat is h else root * h_hat.flatten(3),
            stops=[-(-stop // each) for stop in channel.stops(h, each * symbols)],
            gain=channel.gain,
            budget=setup.power_budget(limits),
            symbols=each * symbols,
            bounds=Bounds(limits, symbols),
            uses=in_order(lengths),
            mixed=False,
            each=each,
        )

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
        return ScalarChannels(sends, scalar, believed, noise, combiner)

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

    def _account(self, on_air: OnAir, delivery: Delivery, told: int) -> None:
        """Add up channel uses, energy, and side information, of which every device has told so many
        numbers."""
        tally, symbols = delivery.tally, on_air.symbols
        sent, slot, sends = symbols.sent, symbols.slot, on_air.coefficients.on_air
        energy = on_air.coefficients.p.abs().square() * on_air.energy
        uses = sends.mT.to(energy.dtype) @ symbols.lengths
        if on_air.part is not None:
            uses = slot.each * (sends * on_air.part.symbols).sum(1)
        spent, counts = energy.sum(1), on_air.coefficients.active.any(1)
        senders, length = sent.cohort.rows_of, float(slot.each * symbols.segments.symbols)
        tally.add(
            symbols=(senders > 0) * length, energy=spent, sent=uses, side=senders * float(told)
        )
        tally.note(on_air=sends.any(1))
        delivery.arrive(sent, None if bool(counts.any(1).all()) else on_air.weight.amax(1))
        slot.bounds.spend(spent)
