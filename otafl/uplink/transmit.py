"""Transmission of a group: combined antennas, set powers, and limits by the devices' energy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from otafl.uplink.combine import combine
from otafl.uplink.layout import Slot
from otafl.uplink.normalise import Normalisation
from otafl.uplink.on_air import OnAir
from otafl.uplink.power import Alignment, set_power
from otafl.uplink.signal import Signal


def transmit(
    slot: Slot, sent: Signal, normalised: Normalisation, alignment: Alignment, state: Any
) -> tuple[Any, OnAir]:
    """Put a group on air.

    Parameters
    ----------
    slot : Slot
        Channels, budgets and limits.
    sent : Signal
        Rows x_k, [n, P].
    normalised : Normalisation
        Their segments, scales and powers.
    alignment : Alignment
        Combiner, power policy and impairments.
    state : Any
        State of the power policy.

    Returns
    -------
    tuple of Any and OnAir
        The next state of the policy, and the transmission: p [S, Q, K] within the energy that
        devices have left, and rows up to their crash.
    """
    segments, bounds = normalised.segments, slot.bounds
    if sent.power_factor is not None:
        slot = replace(slot, budget=sent.scale_budget(slot.budget))
    channels = combine(slot, sent, segments, alignment.receiver, alignment.impairments)
    state, wanted = set_power(slot, sent, normalised, channels, alignment, state)
    # that of zeros is any number
    wanted = replace(wanted, p=torch.where(normalised.power > 0, wanted.p, 0.0))
    wanted = bounds.override(wanted, channels.h_hat, slot.budget, normalised.power, channels.sends)
    coefficients = bounds.limit(wanted, channels.sends, normalised.energy)
    part = bounds.cut_at_crash(sent, segments)
    return state, OnAir(slot, sent, normalised, channels, coefficients, part)
