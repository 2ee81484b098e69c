"""Combine the server's antennas: f^H h_k, one scalar channel for each device and segment."""

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
    """Scalar channels behind the server's combiner, whose noise is that of one antenna.

    sends: [S, K] bool, the transmitters. h, h_hat: [S, Q, K] complex, true and estimated. noise:
    [S, Q] variance of one received real. combiner: f [S, Q, A], |f| = 1.
    """

    sends: Tensor
    h: Tensor
    h_hat: Tensor
    noise: Tensor
    combiner: Tensor


def combine(
    slot: Slot, sent: Signal, segments: Segments, receiver: Receiver, impairments: Impairments
) -> ScalarChannels:
    """Combine the antennas: f^H h_k [S, Q, K] of the channels [S, K, A, C] of the segments' cells.

    A phase that is left after pre-compensation turns the true channel.

    Parameters
    ----------
    slot : Slot
        Channels and budgets.
    sent : Signal
        Rows of the group.
    segments : Segments
        The Q segments of the group.
    receiver : Receiver
        Chooses the combiner f, complex [S, Q, A], |f| = 1, from the estimate.
    impairments : Impairments
        Residual phases, and interference, which the combiner turns into noise.
    """
    cells = list(segments.cells)
    h = slot.h[..., cells].permute(0, 3, 1, 2)  # [S, Q, K, A]
    h_hat = h if slot.h_hat is slot.h else slot.h_hat[..., cells].permute(0, 3, 1, 2)
    sends = slot.bounds.select_able(sent.transmitter_mask)
    combiner = receiver.combine(h_hat, sends, slot.budget)
    scalar = apply_combiner(combiner, h)
    believed = scalar if h_hat is h else apply_combiner(combiner, h_hat)
    phases = impairments.phases(sends.shape[1], slot.round)
    if phases is not None:
        scalar = scalar * torch.polar(torch.ones_like(phases), phases)[:, None]
    noise = impairments.noise(combiner, slot.round)
    return ScalarChannels(sends, scalar, believed, noise, combiner)
