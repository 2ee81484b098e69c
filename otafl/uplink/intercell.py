"""Interference between servers whose devices transmit on the same channel uses.

The interference consists of the other devices' signals, not of noise with their power. With x_jk
the symbols of device k of server j, p_jk its transmit scalar, which server j's channels determine,
and h_cjk its channel to the antennas of server c, the combiner f of server c adds

    sum_jk f^H h_cjk p_jk x_jk

to its own sum. Phases are aligned only at a device's own server. No policy or combiner knows the
interference: each server plans as if it were the only one.

A server of a small torus may be seen at several places. Then h_cjk is the sum of the channels from
these places. They fade independently, so that mean powers add up as those of distinct cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from otafl.channels.base import Channel
from otafl.core.contracts import Cohort, apply_combiner
from otafl.uplink.delivery import Slot
from otafl.uplink.signal import sum_quadratures
from otafl.uplink.transmission import Transmission


class InterCellInterference:
    """Links from the devices of other servers to the antennas of S C rows.

    Parameters
    ----------
    interferers : sequence of sequences of int
        For each of C servers the J other servers whose devices reach it. A server occurs once for
        each place at which it is seen.
    channel : Channel
        Channels from the J K devices of those servers to each row, in that order.
    devices : int
        Number of devices of a server, K.
    """

    def __init__(
        self, interferers: Sequence[Sequence[int]], channel: Channel, devices: int
    ) -> None:
        self.interferers, self.channel = interferers, channel
        self._servers, self._devices = len(interferers), devices
        self._link = torch.from_numpy(_find_links(interferers)).to(channel.streams.device)

    def signal(self, on_air: Transmission) -> Tensor:
        """Compute the interference of a group at each server.

        Parameters
        ----------
        on_air : Transmission
            Transmission of the group by the devices of all servers.

        Returns
        -------
        Tensor, float [S C, P]
            Interference on each received real number, in the unit of f^H y.
        """
        cohort = _merge_servers(on_air.signal.cohort, self._servers)
        sent = replace(on_air.signal, cohort=cohort)
        scale = on_air.scale[:, None] * sent.take_rows(on_air.scalars.p.mT)
        gain = sent.take_rows(self.scalar_gains(on_air)) * scale[..., None]  # [n, Q, C]
        gain = gain.to(sent.x.dtype.to_complex())
        return sum_quadratures(sent, gain, on_air.segments).flatten(0, 1)

    def power_gains(self, slot: Slot) -> Tensor:
        """Compute the power gains of the devices to all other servers.

        Returns
        -------
        Tensor, float [S C, K, C cells]
            Sum of |h|^2 over the other servers and their antennas, in each cell of the channel.
        """
        h = self._to_others(slot).unflatten(0, (-1, self._servers))
        total = self._sum_places(h.unflatten(2, (-1, self._devices)))  # [S, C, C, K, A, cells]
        return total.abs().square().sum((1, 4)).flatten(0, 1)

    def scalar_gains(self, on_air: Transmission) -> Tensor:
        """Compute the scalar channels from all devices of a trial to all its servers.

        Returns
        -------
        Tensor, complex [S, C K, Q, C]
            Channels f^H h_cjk, 0 where a device does not reach a server.
        """
        h = self._to_others(on_air.slot)[..., list(on_air.segments.cells)]
        scalar = apply_combiner(on_air.combiner, h.permute(0, 3, 1, 2))
        each = scalar.unflatten(0, (-1, self._servers)).unflatten(3, (-1, self._devices))
        total = self._sum_places(each.transpose(2, 3))  # [S, C, C, Q, K]
        return total.permute(0, 2, 4, 3, 1).flatten(1, 2)

    def _to_others(self, slot: Slot) -> Tensor:
        """Return the channels [S C, J K, A, cells] of a slot from other servers' devices."""
        state = self.channel.get_state(slot.round)
        return state.extend_to(slot.num_uses).flatten(3) * state.gain.sqrt()[:, :, None, None]

    def _sum_places(self, each: Tensor) -> Tensor:
        """Sum links [S, C, J, ...] over the places of a server, [S, C, C, ...].

        The result is ordered by receiving and by transmitting server.
        """
        each = torch.cat([each, torch.zeros_like(each[:, :, :1])], 2)  # a link of gain 0
        server = torch.arange(self._servers, device=each.device)[:, None, None]
        return each[:, server, self._link].sum(3)


def _find_links(interferers: Sequence[Sequence[int]]) -> np.ndarray:
    """Find the links to each server, [C, C, M] int64 in 0 .. J - 1; J fills missing places."""
    servers, links = len(interferers), np.array(interferers)
    to = links[:, None, :] == np.arange(servers)[:, None]  # [C, C, J]
    count = links.shape[1]
    most = max(1, int(to.sum(2).max()))
    return np.sort(np.where(to, np.arange(count), count), axis=2)[:, :, :most]


def _merge_servers(cohort: Cohort, servers: int) -> Cohort:
    """Return the rows of the C servers of a trial as rows of one trial with C K devices."""
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
