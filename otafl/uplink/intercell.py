"""Add up what a server hears of the devices of other servers, who send on the same channel uses.

It is their signals, not a noise of their power: with x_jk the symbols of device k of server j, p_jk
its scalar, which that server's channels made, and h_cjk its channel to the antennas of server c,
the server receives sum_jk h_cjk p_jk x_jk besides its own, and its combiner f makes f^H h_cjk of
it. Phases are aligned at a device's own server only. Nobody knows of it beforehand: policies and
combiners plan as if each server were alone.

A server of a small torus may be seen at several places. Then h_cjk is the sum of the channels from
these places, which fade independently, so that mean powers add up as those of distinct cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from otafl.channels.base import Channel
from otafl.core.contracts import Cohort, apply_combiner
from otafl.uplink.layout import Slot
from otafl.uplink.on_air import OnAir
from otafl.uplink.segments import sum_segments


class InterCellInterference:
    """Hold who hears whom, of S C rows.

    Parameters
    ----------
    heard : C lists of J other servers each, whose devices reach that server. A server may be listed
        several times, once for each place at which it is seen.
    channel : from the J K devices of those to each row, in that order.
    devices : K.
    """

    def __init__(
        self, interferers: Sequence[Sequence[int]], channel: Channel, devices: int
    ) -> None:
        self.interferers, self.channel = interferers, channel
        self._servers, self._devices = len(interferers), devices
        self._link = torch.from_numpy(_find_links(interferers)).to(channel.streams.device)

    def signal(self, on_air: OnAir) -> Tensor:
        """Return what reaches each row [S C, P] of a group that all send, as its own is received:
        in the unit of f^H y."""
        segments, sent = on_air.segments, on_air.signal
        cohort = _merge_servers(sent.cohort, self._servers)
        sent = replace(sent, cohort=cohort)
        scale = (on_air.normalised.scale[:, None] * sent.take_rows(on_air.coefficients.p.mT))[
            ..., None
        ]
        gain = sent.take_rows(self.scalar_gains(on_air)) * scale  # [n, Q, C]
        columns = gain.real if segments.halves == 1 else torch.cat([gain.real, gain.imag], 2)
        sums = [sum_segments(sent, part, columns, segments) for part in segments.parts(sent.x)]
        if len(sums) == 1:
            return sums[0].flatten(0, 1)
        one, two = sums
        width, servers = two.shape[2], self._servers  # the second may be one symbol short
        first = one[:, :servers].clone()
        first[:, :, :width] -= two[:, servers:]
        second = two[:, :servers] + one[:, servers:, :width]
        return torch.cat([first, second], 2).flatten(0, 1)

    def power_gains(self, slot: Slot) -> Tensor:
        """Return how strongly the devices of each row reach all other servers, the sum of |h|^2
        over these and their antennas, [S C, K, cells]."""
        h = self._to_others(slot).unflatten(0, (-1, self._servers))
        total = self._sum_places(h.unflatten(2, (-1, self._devices)))  # [S, C, C, K, A, cells]
        return total.abs().square().sum((1, 4)).flatten(0, 1)

    def scalar_gains(self, on_air: OnAir) -> Tensor:
        """Return the scalar channels from every device of a trial to every of its servers, 0 from
        those that are not heard: [S, C K, Q, C]."""
        h = self._to_others(on_air.slot)[..., list(on_air.segments.cells)]
        scalar = apply_combiner(on_air.channels.combiner, h.permute(0, 3, 1, 2))
        each = scalar.unflatten(0, (-1, self._servers)).unflatten(3, (-1, self._devices))
        total = self._sum_places(each.transpose(2, 3))  # [S, C, C, Q, K]
        return total.permute(0, 2, 4, 3, 1).flatten(1, 2)

    def _to_others(self, slot: Slot) -> Tensor:
        """Return the channels [S C, J K, A, cells] of a slot from others' devices to each row."""
        state = self.channel.get_state(slot.round)
        return state.extend_to(slot.symbols).flatten(3) * state.gain.sqrt()[:, :, None, None]

    def _sum_places(self, each: Tensor) -> Tensor:
        """Sum what reaches servers over the places at which another server is seen.

        each: [S, C, J, ...] by link. Returns [S, C, C, ...] by receiving and by sending server.
        """
        each = torch.cat([each, torch.zeros_like(each[:, :, :1])], 2)  # a link of gain 0
        server = torch.arange(self._servers, device=each.device)[:, None, None]
        return each[:, server, self._link].sum(3)


def _find_links(interferers: Sequence[Sequence[int]]) -> np.ndarray:
    """Return which of its J links are to each server, [C, C, M] int64; J where there are fewer."""
    servers, links = len(interferers), np.array(interferers)
    to = links[:, None, :] == np.arange(servers)[:, None]  # [C, C, J]
    count = links.shape[1]
    most = max(1, int(to.sum(2).max()))
    return np.sort(np.where(to, np.arange(count), count), axis=2)[:, :, :most]


def _merge_servers(cohort: Cohort, servers: int) -> Cohort:
    """Return the rows of each C rows of the stack as those of one trial with C K devices."""
    counts = [
        sum(cohort.counts[first : first + servers])
        for first in range(0, len(cohort.counts), servers)
    ]
    server = cohort.trial % servers
    return replace(
        cohort,
        trial=cohort.trial // servers,
        device=server * cohort.num_devices + cohort.device,
        counts=tuple(counts),
        num_devices=servers * cohort.num_devices,
    )
