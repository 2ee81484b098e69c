"""Cost of sending a group, and the coefficients that it was sent with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.uplink.delivery import Delivery
from otafl.uplink.on_air import OnAir


@dataclass(frozen=True)
class Saves:
    """Saved variables of a link: h, p, c, eta (`link`), and the signals' Gram matrices (`gram`)."""

    link: bool = False
    gram: bool = True


NOT_SAVED = Saves()


def account(on_air: OnAir, delivery: Delivery, num_scalars: int) -> None:
    """Add the channel uses, energy and side information of a group to the tally.

    With e_kq the energy of the symbols before p, device k radiates sum_q |p_kq|^2 e_kq. The energy
    is subtracted from what the device has left.

    Parameters
    ----------
    on_air : OnAir
        Transmission of the group.
    delivery : Delivery
        Gives the tally.
    num_scalars : int
        Real numbers of side information from each device.
    """
    tally, normalised = delivery.tally, on_air.normalised
    sent, slot, sends = on_air.sent, on_air.slot, on_air.coefficients.on_air_mask
    energy = on_air.coefficients.p.abs().double().square() * on_air.energy
    uses = sends.mT.to(energy.dtype) @ normalised.lengths
    if on_air.part is not None:
        uses = slot.uses_per_symbol * (sends * on_air.part.symbols).sum(1)
    spent, counts = energy.sum(1), on_air.coefficients.active_mask.any(1)
    senders, length = (
        sent.cohort.rows_per_trial,
        float(slot.uses_per_symbol * normalised.segments.symbols),
    )
    side = senders * float(num_scalars)
    tally.add(symbols=(senders > 0) * length, energy=spent, sent=uses, side=side)
    tally.note(on_air=sends.any(1))
    weight = None if are_all_delivered(counts) else on_air.weight.amax(1)
    delivery.note_delivered(sent, weight)
    slot.bounds.spend(spent)


def are_all_delivered(counts: Tensor) -> bool:
    """Return whether each trial has a device [S, K] bool that counts.

    It is False on a GPU, for which the host would wait only to take the shorter way.
    """
    return counts.device.type == "cpu" and bool(counts.any(1).all())


def coefficients(on_air: OnAir, gram: bool) -> Tensors:
    r"""Return the coefficients from which the aggregation error follows, by name.

    Parameters
    ----------
    on_air : OnAir
        Transmission of the group.
    gram : bool
        Whether to add the Gram matrices of the signals.

    Returns
    -------
    Tensors
        Name and group -> coefficients, as in the variables `link_*`.

    Notes
    -----
    In a segment with Gram matrix G and gains g_k, the squared error is, plus the noise's part,

    .. math::

        a^H G a, \quad a_k = g_k w_k / W - w_k
    """
    sent = on_air.sent
    values = {
        "h": on_air.channels.h,
        "h_hat": on_air.channels.h_hat,
        "p": on_air.coefficients.p,
        "eta": on_air.coefficients.eta,
        "c": on_air.gain.real,
        "active": on_air.coefficients.active_mask,
        "m": on_air.normalised.power,
        "noise": on_air.channels.noise,
        "weight": sent.grid(sent.weight),
    }
    if on_air.part is not None:
        values["sent"] = on_air.part.symbols
    if gram:
        values["gram"] = _gram(on_air)
    return {f"{name}/{sent.index}": value for name, value in values.items()}


def _gram(on_air: OnAir) -> Tensor:
    """Compute the Gram matrices of the devices' signals, [S, Q, K, K]."""
    sent, segments = on_air.sent, on_air.segments
    rows, *second = segments.parts(sent.grid(sent.x).flatten(0, 1))
    if second:  # perhaps one symbol short
        missing = rows.shape[1] - second[0].shape[1]
        rows = torch.complex(rows, torch.nn.functional.pad(second[0], (0, missing)))
    rows = rows.unflatten(0, on_air.gain.shape[::2])
    parts = [rows[..., first:stop] for first, stop in segments.bounds]
    return torch.stack([torch.matmul(part.conj(), part.mT) for part in parts], 1)
