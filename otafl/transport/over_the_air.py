"""Analogue over-the-air aggregation: all devices transmit at once on the same symbols, and the
receiver gets y = sum_k h_k p_k x_k + z once, with one noise z ~ CN(0, sigma^2) a symbol and
antenna.

The server's combiner f, |f| = 1, makes one scalar channel f^H h_k of the antennas, with the noise
of one. The payload is real and devices pre-compensate the phase they believe in, so Re(f^H y)
carries all: with c_k = Re(f^H h_k p_k) / sqrt(eta), Re(f^H y) / sqrt(eta) = sum_k c_k x_k + n, n of
variance N / eta, N = sigma^2 / 2. That is one weighted reduction of real numbers; no complex array
of the payload's size is made. For a weighted mean a device sends K w_k x_k, and silent devices are
left out of K and of the weights, so the estimate is sum_k c_k w_k x_k / W + n / (K W), W the weight
that was on air.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
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
from otafl.transport.bounded import Bounds, bounds
from otafl.transport.config import OverTheAirConfig
from otafl.transport.impairments import Bent, bent_sum
from otafl.transport.on_air import (
    OnAir,
    exact_weight,
    less,
    of_means,
    reached_weight,
    rows_of_unit,
    saved,
    superposed,
)
from otafl.transport.report import Tally
from otafl.transport.segments import Segments, cut, energies, segment_sums
from otafl.transport.setup import Gathered, LinkSetup
from otafl.transport.superpose import (
    Signal,
    divide,
    error_free,
    masked_weight,
    signal,
    squared_norm,
)


@dataclass(frozen=True)
class _Cells:
    """The channel of a whole payload, large-scale gain included. h, h_hat: [S, K, A, C] true and
    estimated, cells flattened over (B, F); one tensor where the estimate is the truth. stops: the
    channel use after which each cell ends. blocks: B. gain, budget: [S, K]. symbols: channel uses
    of the slot."""

    h: Tensor
    h_hat: Tensor
    stops: list[int]
    blocks: int
    gain: Tensor
    budget: Tensor
    symbols: int


class OverTheAir:
    gives = OverTheAirConfig.gives

    def __init__(self, config: OverTheAirConfig, setup: LinkSetup) -> None:
        self.config = config
        self.setup = setup
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
        uplink = [s for g, s in zip(payload, signals, strict=True) if g.route == "uplink"]
        cells = self._cells(uplink, channel, round, limits)
        bound = bounds(limits, cells.symbols)
        if uplink:
            pilots = float(self.setup.csi.pilot_symbols * cells.blocks)
            tally.side_symbols(uplink[0].cohort.rows_of * pilots)
        start = 0
        for index, (group, sent) in enumerate(zip(payload, signals, strict=True)):
            if group.route == "ideal":
                gathered.add(*error_free(sent))
                continue
            segments = cut(sent, start, cells.stops, self._blockwise, self.config.quadrature)
            means = self._means(sent, segments)
            if means is not None:
                sent = less(sent, segments, means)
            on_air = self._transmit(sent, segments, cells, round, bound, start)
            start += segments.symbols
            flat, target = self._receive(sent, on_air, cells.budget, round, str(index))
            if means is not None:
                flat += of_means(sent, segments, means, on_air.scale, on_air)
                target += of_means(sent, segments, means, exact_weight(sent), None)
            count: Tensor | Blocks = on_air.weight[:, 0]
            if sent.mask is not None:
                reached = reached_weight(sent, on_air)
                flat = divide(flat, reached) if sent.linear else flat
                target = divide(target, masked_weight(sent)) if sent.linear else target
                count = sent.blocks(reached)
            gathered.add(sent.blocks(flat), count)
            silent = self.setup.policy.may_be_silent or limits.energy is not None
            gathered.arrived(sent, on_air.weight.amax(1) if silent else None)
            tally.error(squared_norm(flat - target), squared_norm(target))
            self._charge(tally, sent, on_air, means is not None, bound)
            if self.setup.save_link:
                tally.saved |= saved(index, sent, on_air, self.setup.save_gram)
        return gathered.received(), tally.report()

    @property
    def _blockwise(self) -> bool:
        return self.config.normalise == "block"

    def _cells(
        self, uplink: Sequence[Signal], channel: ChannelState, round: int, limits: Limits
    ) -> _Cells:
        halves = 2 if self.config.quadrature else 1
        lengths = [-(-sent.reals // halves) for sent in uplink]
        symbols = max(1, sum(lengths))
        h, root = channel.over(symbols), channel.gain.sqrt()[:, :, None, None]
        h_hat = self.setup.csi.estimate(h, channel.gain, round)
        scaled = root * h.flatten(3)
        budget = self.setup.budget.budget
        if limits.power is not None:
            budget = budget * limits.power
        if self.config.snr_convention == "total_energy":
            # a bound on the energy of the payload is spread over the symbols that a device sends
            sends = torch.zeros_like(budget)
            for sent, length in zip(uplink, lengths, strict=True):
                sends = sends + length * sent.grid(torch.ones_like(sent.weight))
            budget = budget / sends.clamp_min(1.0)
        return _Cells(
            h=scaled,
            h_hat=scaled if h_hat is h else root * h_hat.flatten(3),
            stops=channel.stops(h, symbols),
            blocks=h.shape[3],
            gain=channel.gain,
            budget=budget,
            symbols=symbols,
        )

    def _means(self, sent: Signal, segments: Segments) -> Tensor | None:
        """[n, Q] mean of each normalised stretch, or None where it is not taken off."""
        if not self.config.centre or sent.mask is not None:
            return None
        ones = sent.x.new_ones(len(segments.bounds), 1)
        total = sent.x.new_zeros(len(sent.x), len(segments.bounds))
        reals = torch.zeros_like(ones[:, 0])
        for part in segments.parts(sent.x):
            for q, (first, stop) in enumerate(segments.bounds):
                total[:, q] += part[:, first:stop].sum(1)
                reals[q] += part[:, first:stop].shape[1]
        return segments.by_scope(total) / segments.by_scope(reals)

    def _transmit(
        self,
        sent: Signal,
        segments: Segments,
        cells: _Cells,
        round: int,
        bound: Bounds | None,
        start: int,
    ) -> OnAir:
        """Powers of what is sent, the combiner, the policy's coefficients and what results."""
        setup, sends = self.setup, sent.on_air()
        if bound is not None:
            sends = bound.able(sends)
        scale = exact_weight(sent)
        if sent.linear:
            scale = scale * sent.cohort.rows_of[sent.cohort.trial]  # K w_k
        energy = energies(sent, segments) * scale.square()[:, None]
        lengths = energy.new_tensor(segments.lengths)
        m = segments.by_scope(energy) / segments.by_scope(lengths)
        link_m = sent.grid(m).mT
        energy_of = sent.grid(energy).mT
        chosen = list(segments.cells)
        h = cells.h[..., chosen].permute(0, 3, 1, 2)  # [S, Q, K, A]
        h_hat = h if cells.h_hat is cells.h else cells.h_hat[..., chosen].permute(0, 3, 1, 2)
        combiner = setup.receiver.combine(h_hat, sends, cells.budget)
        scalar = combined(combiner, h)
        believed = scalar if h_hat is h else combined(combiner, h_hat)
        phases = setup.impairments.phases(sends.shape[1], round)
        link = Link(
            h=believed,
            gain=cells.gain,
            budget=cells.budget,
            power=link_m if bound is None else bound.powers(link_m),
            noise=setup.impairments.known_noise,
            sends=sends,
            linear=sent.linear,
            hyper=setup.policy_hyper,
            antennas=h.shape[3],
            variation=(
                _variation(sent, segments, scale, energy) if setup.policy.wants_variation else None
            ),
            energy=None if bound is None else bound.energy,
            lengths=lengths,
            payload=cells.symbols,
        )
        self._policy_state, coefficients = setup.policy.coefficients(self._policy_state, link)
        if setup.receiver.scale == "mmse":
            coefficients = _mmse_scaled(coefficients, link)
        part = None
        if bound is not None:
            coefficients = bound.cut(coefficients, sends, energy_of)
            part = bound.sent_part(sent, segments, start)
        if part is not None:
            energy_of = sent.grid(energies(part.signal, segments) * scale.square()[:, None]).mT
        if phases is not None:
            scalar = scalar * torch.polar(torch.ones_like(phases), phases)[:, None]
        sent_gain = coefficients.p / coefficients.eta.sqrt()[..., None]
        active_rows = sent.at_rows(coefficients.active.mT).to(scale.dtype)
        weight = scale.new_zeros(sent.cohort.trials, len(segments.bounds))
        weight.index_add_(0, sent.cohort.trial, sent.weight[:, None] * active_rows)
        unit = torch.ones_like(weight)
        if sent.linear:
            unit = unit / sent.cohort.rows_of.clamp_min(1.0)[:, None]
            if sent.mask is None:  # else the sum is divided coordinate by coordinate
                unit = unit / weight.clamp_min(1e-12)
        return OnAir(
            segments=segments,
            scale=scale,
            unit=unit,
            m=link_m,
            energy=energy_of,
            coefficients=coefficients,
            h=scalar,
            h_hat=believed,
            noise=setup.impairments.noise(combiner, round),
            gain=scalar * sent_gain,
            believed=believed * sent_gain,
            active_rows=active_rows,
            weight=weight,
            part=part,
        )

    def _receive(
        self, sent: Signal, on_air: OnAir, budget: Tensor, round: int, stream: str
    ) -> tuple[Tensor, Tensor]:
        """The estimate [S, P] and the error-free aggregate [S, P]; with a mask both are still sums,
        to be divided by coordinate."""
        impairments, segments = self.setup.impairments, on_air.segments
        heard = sent if on_air.part is None else on_air.part.signal
        coefficient = sent.at_rows(on_air.gain.mT) * rows_of_unit(sent, on_air)
        variance = on_air.noise / on_air.coefficients.eta * on_air.unit.square()
        variance = variance * (on_air.weight > 0)
        if impairments.bends:
            flat = self._bent(heard, on_air, coefficient, variance, budget, round, stream)
            received = on_air.coefficients.eta.sqrt() / on_air.unit
            if impairments.config.adc_bits is not None:
                factor = torch.cat(
                    [received[:, segments.of_columns(flat.device)]] * segments.halves, 1
                )
                factor = factor[:, : sent.reals]
                flat = impairments.quantise(flat * factor) / factor
            return flat, sent.sum(exact_weight(sent)[:, None])[:, 0]
        noise = self.setup.streams.normal(f"noise/{stream}", round, (sent.reals,))
        flat, target = superposed(heard, segments, coefficient, variance.sqrt(), noise)
        return flat, target if heard is sent else sent.sum(exact_weight(sent)[:, None])[:, 0]

    def _bent(
        self,
        sent: Signal,
        on_air: OnAir,
        coefficient: Tensor,
        variance: Tensor,
        budget: Tensor,
        round: int,
        stream: str,
    ) -> Tensor:
        impairments = self.setup.impairments
        carrier, delay = impairments.offsets(budget.shape[1], round)
        unit = rows_of_unit(sent, on_air)
        amplitude = sent.at_rows(on_air.coefficients.p.abs().mT) * on_air.scale[:, None]
        peak = (impairments.clip[:, None] * budget).sqrt()
        bent = Bent(
            gain=coefficient,
            believed=sent.at_rows(on_air.believed.mT).real * unit,
            target=unit * on_air.active_rows,
            power=sent.at_rows(on_air.m.mT) / on_air.scale.square().clamp_min(1e-30)[:, None],
            amplitude=amplitude,
            peak=sent.at_rows(peak),
            carrier=sent.at_rows(carrier),
            delay=sent.at_rows(delay),
            noise=variance,
        )
        return bent_sum(sent, on_air.segments, bent, impairments, round, stream)

    def _charge(
        self, tally: Tally, sent: Signal, on_air: OnAir, centred: bool, bound: Bounds | None
    ) -> None:
        """Channel uses, energy, and side information: for every device and normalised stretch its
        mean power, the mean that was taken off, and what varies."""
        energy = on_air.coefficients.p.abs().square() * on_air.energy
        active, senders = on_air.coefficients.active, sent.cohort.rows_of
        lengths = energy.new_tensor(on_air.segments.lengths)
        symbols = active.mT.to(energy.dtype) @ lengths
        if on_air.part is not None:
            symbols = (active * on_air.part.symbols).sum(1)
        spent = energy.sum(1)
        if bound is not None:
            bound.spend(spent)
        tally.slot((senders > 0) * float(on_air.segments.symbols))
        tally.radiate(spent, symbols, active.any(1))
        stretches = on_air.segments.scopes[-1] + 1
        told = 1 + centred + self.setup.policy.wants_variation
        tally.side_symbols(senders * float(stretches * told))


def _mmse_scaled(coefficients: Coefficients, link: Link) -> Coefficients:
    """The same transmit scalars with the receive scaling that minimises sum m (c - 1)^2 + N / eta;
    the policy's own where nothing useful is received."""
    arrives = (link.h * coefficients.p).real
    power = link.power * coefficients.active
    signal_power = (power * arrives).sum(-1)
    energy = (power * arrives.square()).sum(-1)
    root = (link.noise[:, None] + energy) / signal_power.clamp_min(1e-30)
    return replace(coefficients, eta=torch.where(signal_power > 0, root.square(), coefficients.eta))


def _variation(sent: Signal, segments: Segments, scale: Tensor, energy: Tensor) -> Tensor:
    """[S, Q] squared multivariate coefficient of variation of what is sent over the devices: power
    about the devices' common mean, over that of the mean (unbiased in K, at least 0)."""
    k = sent.cohort.rows_of[:, None]
    total = energy.new_zeros(len(k), energy.shape[1]).index_add_(0, sent.cohort.trial, energy)
    both = torch.zeros_like(total)
    coefficient = scale[:, None, None].expand(-1, len(segments.bounds), 1)
    for part in segments.parts(sent.x):
        sums = segment_sums(sent, part, coefficient, segments)[:, 0]
        for q, (first, stop) in enumerate(segments.bounds):
            both[:, q] += squared_norm(sums[:, first:stop])
    total, both = segments.by_scope(total), segments.by_scope(both)
    mean = ((both - total) / (k * (k - 1.0)).clamp_min(1.0)).clamp_min(1e-30)
    return (total / k.clamp_min(1.0) / mean - 1.0).clamp_min(0.0)
