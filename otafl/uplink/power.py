"""Set what devices send with: the scalars p [S, Q, K] and eta [S, Q] of the power policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.csi.base import Csi
from otafl.power.base import PowerPolicy
from otafl.power.scalars import apply_mmse_scaling
from otafl.receivers.base import Receiver
from otafl.uplink.combine import ScalarChannels
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.layout import Slot
from otafl.uplink.normalise import Normalisation, compute_variation
from otafl.uplink.signal import Signal


@dataclass(frozen=True)
class Alignment:
    """The parts that make signals add up in phase: channel knowledge, combiner and power policy.

    csi, receiver : what devices know, and how the server combines its antennas.
    policy : of power. statistics: of the channel, which it prepares with. hyper: its stackable
        fields.
    impairments : what turns and disturbs the scalar channels.
    """

    csi: Csi
    receiver: Receiver
    policy: PowerPolicy
    statistics: ChannelStatistics
    hyper: Hyper
    impairments: Impairments

    def prepare(self) -> Any:
        """Return the policy's state before the first round."""
        return self.policy.prepare(self.statistics, self.hyper)


def set_power(
    slot: Slot,
    sent: Signal,
    normalised: Normalisation,
    channels: ScalarChannels,
    alignment: Alignment,
    state: Any,
) -> tuple[Any, Coefficients]:
    """Ask the power policy. It sees the estimate of the scalar channels, and the mean symbol powers
    m [S, Q, K], which are side information.

    Returns
    -------
    The policy's next state, and the scalars that it wants.
    """
    policy, receiver = alignment.policy, alignment.receiver
    link = Link(
        h=channels.h_hat,
        gain=slot.gain,
        budget=slot.budget,
        symbol_power=slot.bounds.scale_powers(normalised.power),
        noise_variance=alignment.impairments.compute_known_noise(slot.round),
        transmit_mask=channels.sends,
        is_linear=sent.linear,
        hyper=alignment.hyper,
        num_antennas=slot.h.shape[2],
        variation=compute_variation(sent, normalised) if policy.needs_variation else None,
        energy_budget=slot.bounds.energy,
        segment_lengths=normalised.lengths,
        num_symbols=slot.symbols,
    )
    state, wanted = policy.compute_coefficients(state, link)
    return state, apply_mmse_scaling(wanted, link) if receiver.scale == "mmse" else wanted
