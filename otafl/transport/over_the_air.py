"""Analogue over-the-air aggregation: all devices transmit at once on the same symbols, and the
receiver gets y = sum_k h_k p_k x_k + z once, with one noise z ~ CN(0, sigma^2) a symbol.

The payload is real and devices pre-compensate the phase they believe in, so Re(y) carries all:
with c_k = Re(h_k p_k) / sqrt(eta), Re(y) / sqrt(eta) = sum_k c_k x_k + n, n of variance N / eta,
N = sigma^2 / 2. That is one weighted reduction of real numbers; no complex array of the
payload's size is made. For a weighted mean a device sends K w_k x_k, and silent devices are left
out of K and of the weights, so the estimate is sum_k c_k w_k x_k / W + n / (K W), W the weight
that was on air.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.contracts import (
    Blocks,
    ChannelState,
    Coefficients,
    Cohort,
    Link,
    LinkReport,
    Payload,
    Received,
)
from otafl.transport.config import OverTheAirConfig
from otafl.transport.report import Tally
from otafl.transport.setup import Gathered, LinkSetup
from otafl.transport.superpose import Signal, divide, error_free, masked_weight, signal

NOISE_VARIANCE = 0.5
"""N: half the receiver's complex noise variance, which is the unit of power."""


@dataclass(frozen=True)
class _OnAir:
    """One group's transmission. Segments q of its columns have a coefficient of their own.
    columns: their bounds; lengths: [Q]. m: [S, Q, K] mean power of a transmitted symbol before p.
    c: [S, Q, K] effective gains. c_rows, active_rows: both at the signal's rows, [n, Q]."""

    columns: list[tuple[int, int]]
    lengths: Tensor
    m: Tensor
    coefficients: Coefficients
    c: Tensor
    c_rows: Tensor
    active_rows: Tensor


class OverTheAir:
    gives = OverTheAirConfig.gives

    def __init__(self, config: OverTheAirConfig, setup: LinkSetup) -> None:
        self.config = config
        self.setup = setup
        self._policy_state = setup.policy_state

    def deliver(
        self, payload: Payload, cohort: Cohort, channel: ChannelState, round: int
    ) -> tuple[Received, LinkReport]:
        tally, gathered = Tally(self.setup.budget, cohort.population), Gathered()
        root_gain = channel.gain.sqrt()
        h = root_gain * channel.h[:, :, 0, 0, 0]
        estimate = self.setup.csi.estimate(channel.h, round)
        h_hat = h if estimate is channel.h else root_gain * estimate[:, :, 0, 0, 0]
        signals = [signal(group, cohort) for group in payload]
        budget = self._budgets(payload, signals, channel.gain)
        for index, (group, sent) in enumerate(zip(payload, signals, strict=True)):
            if group.route == "ideal":
                gathered.add(*error_free(sent))
                continue
            on_air = self._transmit(sent, h, h_hat, channel.gain, budget)
            noise = self.setup.streams.normal(f"noise/{index}", round, (sent.reals,))
            flat, target, weight = _receive(sent, on_air, noise)
            count: Tensor | Blocks = weight[:, 0]
            if sent.mask is not None:
                reached = _reached(sent, on_air)
                flat = divide(flat, reached) if sent.linear else flat
                target = divide(target, masked_weight(sent)) if sent.linear else target
                count = sent.blocks(reached)
            gathered.add(sent.blocks(flat), count)
            silent = self.setup.policy.may_be_silent
            gathered.arrived(sent, weight.amax(1) if silent else None)
            tally.error(_squared_norm(flat - target), _squared_norm(target))
            self._charge(tally, sent, on_air)
            if self.setup.save_link:
                tally.saved |= _saved(index, sent, on_air, h, h_hat)
                if self.setup.save_gram:
                    rows = sent.grid(sent.x)
                    tally.saved[f"gram/{index}"] = torch.bmm(rows, rows.mT)
        return gathered.received(), tally.report()

    def _budgets(self, payload: Payload, signals: list[Signal], gain: Tensor) -> Tensor:
        """[S, K]: bounds on |p|^2 times the mean symbol power. A budget on the energy of the whole
        payload is spread over the symbols that a device sends on the uplink."""
        budget = self.setup.budget.budget[:, None].expand_as(gain)
        if self.config.snr_convention == "per_symbol":
            return budget
        symbols = torch.zeros_like(budget)
        for group, sent in zip(payload, signals, strict=True):
            if group.route == "uplink":
                symbols = symbols + sent.reals * sent.grid(torch.ones_like(sent.weight))
        return budget / symbols.clamp_min(1.0)

    def _transmit(
        self, sent: Signal, h: Tensor, h_hat: Tensor, gain: Tensor, budget: Tensor
    ) -> _OnAir:
        """Powers of what is sent, the policy's coefficients, and the gains that result."""
        blockwise = self.config.normalise == "block"
        columns = sent.columns() if blockwise else [(0, sent.reals)]
        lengths = sent.weight.new_tensor([stop - first for first, stop in columns])
        energy = torch.stack([_squared_norm(sent.x[:, first:stop]) for first, stop in columns], 1)
        if sent.linear:
            scale = sent.weight * sent.cohort.rows_of[sent.cohort.trial]  # K w_k
            energy = energy * scale.square()[:, None]
        m = sent.grid(energy / lengths).mT
        shape = (-1, len(columns), -1)
        link = Link(
            h=h_hat[:, None].expand(*shape),
            gain=gain,
            budget=budget,
            power=m,
            noise=torch.full_like(self.setup.budget.budget, NOISE_VARIANCE),
            sends=sent.on_air(),
            linear=sent.linear,
            hyper=self.setup.policy_hyper,
        )
        self._policy_state, coefficients = self.setup.policy.coefficients(self._policy_state, link)
        c = (h[:, None] * coefficients.p).real / coefficients.eta.sqrt()[..., None]
        active_rows = sent.at_rows(coefficients.active.mT).to(c.dtype)
        return _OnAir(columns, lengths, m, coefficients, c, sent.at_rows(c.mT), active_rows)

    def _charge(self, tally: Tally, sent: Signal, on_air: _OnAir) -> None:
        energy = on_air.coefficients.p.abs().square() * on_air.m
        active, senders = on_air.coefficients.active, sent.cohort.rows_of
        tally.slot((senders > 0) * float(sent.reals))
        tally.radiate(
            energy.mT @ on_air.lengths,
            active.mT.to(energy.dtype) @ on_air.lengths,
            active.any(1),
        )
        tally.side_symbols(senders * float(len(on_air.columns)))


def _receive(sent: Signal, on_air: _OnAir, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The estimate [S, P], the error-free aggregate [S, P] and the weight on air [S, Q], for a
    standard normal noise [S, P]. The signal is read once for both. With a mask both are still
    sums, to be divided by coordinate."""
    weight = sent.weight.new_zeros(sent.cohort.trials, len(on_air.columns))
    weight.index_add_(0, sent.cohort.trial, sent.weight[:, None] * on_air.active_rows)
    spread = (NOISE_VARIANCE / on_air.coefficients.eta).sqrt() * (weight > 0)
    exact = sent.weight if sent.linear else torch.ones_like(sent.weight)
    gains = on_air.c_rows
    if sent.linear:
        gains = gains * exact[:, None]
        spread = spread / sent.cohort.rows_of.clamp_min(1.0)[:, None]
        if sent.mask is None:
            share = weight.clamp_min(1e-12)
            gains, spread = gains / share[sent.cohort.trial], spread / share
    parts = []
    for q, (first, stop) in enumerate(on_air.columns):
        both = torch.stack([gains[:, q], exact], 1)
        part = sent.sum(both, sent.x[:, first:stop])
        part[:, 0].addcmul_(noise[:, first:stop], spread[:, q, None])
        parts.append(part)
    sums = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
    return sums[:, 0], sums[:, 1], weight


def _squared_norm(rows: Tensor) -> Tensor:
    """[n] of [n, P]."""
    return torch.linalg.vector_norm(rows, dim=1).square()


def _reached(sent: Signal, on_air: _OnAir) -> Tensor:
    """[S, P]: the weight on air that knows each coordinate."""
    assert sent.mask is not None
    parts = [
        sent.sum((sent.weight * on_air.active_rows[:, q])[:, None], sent.mask[:, first:stop])[:, 0]
        for q, (first, stop) in enumerate(on_air.columns)
    ]
    return torch.cat(parts, 1)


def _saved(index: int, sent: Signal, on_air: _OnAir, h: Tensor, h_hat: Tensor) -> Blocks:
    """What the aggregation error follows from, given the Gram matrix of the signals: it is
    a^T Gram a / (w^T Gram w) of the deviations a_k = c_k w_k / W - w_k, plus the noise's part."""
    return {
        f"h/{index}": h,
        f"h_hat/{index}": h_hat,
        f"p/{index}": on_air.coefficients.p,
        f"eta/{index}": on_air.coefficients.eta,
        f"c/{index}": on_air.c,
        f"active/{index}": on_air.coefficients.active,
        f"m/{index}": on_air.m,
        f"weight/{index}": sent.grid(sent.weight),
    }
