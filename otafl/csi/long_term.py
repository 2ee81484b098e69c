"""Long-term statistics of a channel, for policies that plan.

Closed forms are used if the channel has them, otherwise averages over states of far-away rounds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from otafl.channels.base import Channel
from otafl.channels.fading import DRAWS, FAR, NUMBERS
from otafl.core.contracts import ChannelState, ChannelStatistics, LinkBudget, apply_combiner
from otafl.csi.base import Csi
from otafl.receivers.base import Receiver

LEAST = 256
"""Smallest number of states in an average."""

AT_ONCE = 1 << 18
"""Channel coefficients that are combined together; a receiver needs as many steps for one state."""


class _StateDraws:
    """States of far-away rounds after combining: true and estimated scalar channels."""

    def __init__(self, channel: Channel, csi: Csi, receiver: Receiver, budget: LinkBudget) -> None:
        self._channel, self._csi, self._receiver, self._budget = channel, csi, receiver, budget

    @functools.lru_cache(maxsize=2)  # noqa: B019 (lives as long as the link)
    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Draw h and h_hat [n, C, S, K] of the cells of n states, with large-scale gain.

        Rounds are further apart if fading is correlated over rounds.
        """
        true: list[Tensor] = []
        believed: list[Tensor] = []
        all_devices = torch.ones_like(self._budget.budget, dtype=torch.bool)
        for states in self._yield_batches(count):
            h, h_hat = _join_cells(states)
            combiner = self._receiver.combine(h_hat, all_devices, self._budget.budget)
            for drawn, of in ((true, h), (believed, h_hat)):
                cells = apply_combiner(combiner, of).movedim(1, 0)
                drawn.append(cells.unflatten(0, (len(states), -1)))
        return torch.cat(true), torch.cat(believed)

    def _yield_batches(self, count: int) -> Iterator[list[tuple[Tensor, Tensor, Tensor]]]:
        """Yield gain, h and h_hat of `count` states, some at a time."""
        some: list[tuple[Tensor, Tensor, Tensor]] = []
        for state, estimate in self._yield_states(count):
            # a view of a block of rounds would keep those between the states in memory
            h = state.h if self._channel.correlation_rounds == 1 else state.h.clone()
            some.append((state.gain, h, h if estimate is state.h else estimate))
            if len(some) * h.numel() >= AT_ONCE:
                yield some
                some = []
        if some:
            yield some

    @functools.cached_property
    def strengths(self) -> Tensor:
        """Means of |h_hat|^2 of the unit channel over antennas and sub-carriers, [n, S, K]."""
        each = (h_hat for _, h_hat in self._yield_states(max(LEAST, self._num_states)))
        return torch.stack([h_hat.abs().square().flatten(2).mean(2) for h_hat in each])

    @functools.cached_property
    def samples(self) -> tuple[Tensor, Tensor]:
        """True and estimated channels h and h_hat, [n, S, K], with large-scale gain.

        Their number depends only on the devices of a trial. The sub-carrier groups of a state have
        the same distribution, so fewer states suffice if there are several.
        """
        groups = self._channel.get_large_scale_state(0).h.shape[4]
        true, believed = self.draw(max(LEAST, self._num_states // groups))
        return true.flatten(0, 1), believed.flatten(0, 1)

    @property
    def _num_states(self) -> int:
        return min(DRAWS, NUMBERS // self._budget.budget.shape[1])

    def _yield_states(self, count: int) -> Iterator[tuple[ChannelState, Tensor]]:
        """Yield `count` states, each with the estimate of h."""
        for index in range(count):
            round = FAR + index * self._channel.correlation_rounds
            state = self._channel.get_state(round)
            yield state, self._csi.estimate(state.h, state.gain, round)


def _join_cells(states: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return h and h_hat [S, n C, K, A] of the cells of n states, with large-scale gain."""
    gains, true, estimates = zip(*states, strict=True)
    alike = all(gain is gains[0] for gain in gains)
    root = (gains[0][:, None] if alike else torch.stack(gains, 1)).sqrt()[:, :, None, :, None]

    def join(each: tuple[Tensor, ...]) -> Tensor:
        cells = torch.stack(each, 1).flatten(4).permute(0, 1, 4, 2, 3)  # [S, n, C, K, A]
        return (root * cells).flatten(1, 2).contiguous()

    h = join(true)
    is_perfect = all(h_hat is h for h, h_hat in zip(true, estimates, strict=True))
    return h, h if is_perfect else join(estimates)


def compute_statistics(
    channel: Channel, csi: Csi, receiver: Receiver, budget: LinkBudget, noise: Tensor
) -> ChannelStatistics:
    """Compute the long-term statistics of S trials.

    Closed forms are for a channel with one antenna, whose estimate has a normal error of known
    variance.

    Parameters
    ----------
    channel, csi, receiver, budget : Channel, Csi, Receiver and LinkBudget
        Parts of the uplink.
    noise : Tensor, float [S]
        Noise variance N of one received real number.

    Returns
    -------
    ChannelStatistics
        Statistics of the scalar channels [S, K].
    """
    states = _StateDraws(channel, csi, receiver, budget)
    variance = csi.variance if channel.has_closed_form else None
    gain = channel.get_large_scale_state(0).gain
    normal = variance if channel.is_gaussian else None  # then |h_hat|^2 is exponential

    def mean_amplitude() -> Tensor:
        unit = None if variance is None else channel.unit_mean_amplitude
        if unit is not None and variance is not None:
            if not bool(variance.any()):
                return torch.as_tensor(unit).to(gain) * gain.sqrt()
            if channel.is_gaussian:  # h given h_hat is normal about h_hat / (1 + v)
                return unit / (1.0 + variance[:, None]).sqrt() * gain.sqrt()
        h, h_hat = states.samples
        return (h * torch.conj(torch.sgn(h_hat))).real.mean(0)

    def mean_power() -> Tensor:
        if channel.has_closed_form:
            return gain
        return states.samples[0].abs().square().mean(0)

    def mean_inverse(threshold: Tensor) -> Tensor:
        if variance is not None:
            known = _compute_mean_inverse(channel, threshold, budget.gain, variance)
            if known is not None:
                return known
        power = states.samples[1].abs().square()
        inverse = torch.where(power >= threshold[:, None], 1.0 / power.clamp_min(1e-30), 0.0)
        return inverse.mean(0).clamp_min(torch.finfo(gain.dtype).tiny)

    def prob_unit_gain_above(threshold: Tensor) -> Tensor:
        flat = channel.get_large_scale_state(0).h.shape[4] == 1
        threshold = threshold if threshold.dim() > 1 else threshold[:, None]
        if flat and normal is not None:
            return torch.exp(-threshold / (1.0 + normal[:, None])).expand_as(gain)
        return (states.strengths >= threshold).to(gain.dtype).mean(0)

    def prob_gain_above(threshold: Tensor) -> Tensor:
        if normal is not None:
            power = gain * (1.0 + normal[:, None])
            return torch.exp(-threshold / power.clamp_min(torch.finfo(gain.dtype).tiny))
        return (states.samples[1].abs().square() >= threshold).to(gain.dtype).mean(0)

    return ChannelStatistics(
        gain=gain,
        budget=budget.budget,
        noise_variance=noise,
        mean_amplitude=mean_amplitude,
        mean_power=mean_power,
        mean_inverse=mean_inverse,
        prob_unit_gain_above=prob_unit_gain_above,
        prob_gain_above=prob_gain_above,
        draw_samples=lambda count: states.draw(count)[1][:, 0],
    )


def _compute_mean_inverse(
    channel: Channel, threshold: Tensor, gain: Tensor, variance: Tensor
) -> Tensor | None:
    """Return [S, K] from the channel's closed form for one device; None without one.

    It is 0 for a device of gain 0, which never transmits. Each different case is computed once.
    """
    cases = torch.stack([threshold, variance], 1)[:, None].expand(-1, gain.shape[1], -1)
    rows = torch.cat([cases, gain[..., None]], 2).flatten(0, 1)
    distinct, place = torch.unique(rows, dim=0, return_inverse=True)
    values = [
        channel.compute_mean_inverse(t, g, v) if g > 0 else 0.0 for t, v, g in distinct.tolist()
    ]
    if None in values:
        return None
    return gain.new_tensor(values)[place].view_as(gain)
