"""Transmit scalars p [S, Q, K] and receive scaling eta [S, Q] of a group, by the power policy."""

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
    """Parts that make signals add up coherently: channel estimates, combiner and power policy.

    Parameters
    ----------
    csi : Csi
        Channel estimates of devices and server.
    receiver : Receiver
        Combination of the server's antennas.
    policy : PowerPolicy
        Rule for transmit scalars and receive scaling.
    statistics : ChannelStatistics
        Long-term channel statistics, with which the policy prepares its state.
    hyper : Hyper
        Stackable fields of the policy, [S] each.
    impairments : Impairments
        Residual phases and interference.
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
    """Compute the scalars of the power policy for a group.

    The policy sees the estimated scalar channels, and the mean symbol powers m [S, Q, K] as side
    information.

    Parameters
    ----------
    slot : Slot
        Large-scale gains, budgets and limits.
    sent : Signal
        Rows of the group.
    normalised : Normalisation
        Their powers.
    channels : ScalarChannels
        Estimated channels [S, Q, K], and the transmitters.
    alignment : Alignment
        Policy and receiver.
    state : Any
        State of the policy.

    Returns
    -------
    tuple of Any and Coefficients
        The policy's next state, and its scalars.
    """
    policy, receiver = alignment.policy, alignment.receiver
    link = Link(
        h=channels.h_hat,
        gain=slot.gain,
        budget=slot.budget,
        symbol_power=slot.bounds.report_powers(normalised.power),
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
