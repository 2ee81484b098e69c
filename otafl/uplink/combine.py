"""Combination of the server's antennas to one scalar channel for each device and segment."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.contracts import apply_combiner
from otafl.receivers.base import Receiver
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.layout import Slot
from otafl.uplink.segments import Segments
from otafl.uplink.signal import Signal


@dataclass(frozen=True)
class ScalarChannels:
    """Scalar channels behind the server's combiner, with the noise of one antenna.

    Parameters
    ----------
    sends : Tensor, bool [S, K]
        Transmitters.
    h, h_hat : Tensor, complex [S, Q, K]
        True and estimated scalar channel.
    noise : Tensor, float [S, Q]
        Noise variance of one received real number, interference included.
    combiner : Tensor, complex [S, Q, A]
        Combiner f with unit norm.
    """

    sends: Tensor
    h: Tensor
    h_hat: Tensor
    noise: Tensor
    combiner: Tensor


def combine(
    slot: Slot, sent: Signal, segments: Segments, receiver: Receiver, impairments: Impairments
) -> ScalarChannels:
    r"""Combine the antennas to scalar channels.

    Parameters
    ----------
    slot : Slot
        Channels [S, K, A, C] and budgets.
    sent : Signal
        Rows of the group.
    segments : Segments
        The Q segments of the group, each in one cell of the channel.
    receiver : Receiver
        Chooses the combiner f from the estimated channel.
    impairments : Impairments
        Residual phases phi_k, and interference, which the combiner turns into noise.

    Returns
    -------
    ScalarChannels
        True and estimated scalar channels [S, Q, K], and their noise [S, Q].

    Notes
    -----
    The estimated channel has no residual phase:

    .. math::

        h_k = f^H \mathbf{h}_k e^{j \varphi_k}, \quad \hat h_k = f^H \hat{\mathbf{h}}_k
    """
    h = _select_cells(slot.h, segments)
    h_hat = h if slot.h_hat is slot.h else _select_cells(slot.h_hat, segments)
    sends = slot.bounds.select_able(sent.transmitter_mask)
    combiner = receiver.combine(h_hat, sends, slot.budget)
    scalar = apply_combiner(combiner, h)
    believed = scalar if h_hat is h else apply_combiner(combiner, h_hat)
    phases = impairments.phases(sends.shape[1], slot.round)
    if phases is not None:
        scalar = scalar * torch.polar(torch.ones_like(phases), phases)[:, None]
    noise = impairments.noise(combiner, slot.round)
    return ScalarChannels(sends, scalar, believed, noise, combiner)


def _select_cells(h: Tensor, segments: Segments) -> Tensor:
    """Return the channels [S, Q, K, A] of the segments, from those of all cells [S, K, A, C]."""
    whole = h.shape[3] == len(segments.cells) == 1
    return (h if whole else h[..., list(segments.cells)]).permute(0, 3, 1, 2)
