"""Coefficients with which a group was sent, as saved variables `link_*`."""

from __future__ import annotations

import torch

from otafl.core.contracts import Tensors
from otafl.uplink.transmission import Transmission


def collect_coefficients(on_air: Transmission, gram: bool) -> Tensors:
    r"""Return the coefficients from which the aggregation error follows, by name.

    Parameters
    ----------
    on_air : Transmission
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
    sent, segments = on_air.sent, on_air.segments
    values = {
        "h": on_air.h,
        "h_hat": on_air.h_hat,
        "p": on_air.scalars.p,
        "eta": on_air.scalars.eta,
        "c": on_air.gain.real,
        "active": on_air.scalars.active_mask,
        "m": on_air.power,
        "noise": on_air.noise,
        "weight": sent.grid(sent.weight),
    }
    if on_air.stop is not None:
        values["sent"] = on_air.sent_symbols
    if gram:
        rows, *second = segments.parts(sent.grid(sent.x).flatten(0, 1))
        if second:  # perhaps one symbol short
            missing = rows.shape[1] - second[0].shape[1]
            rows = torch.complex(rows, torch.nn.functional.pad(second[0], (0, missing)))
        rows = rows.unflatten(0, on_air.h.shape[::2])
        parts = [rows[..., first:stop] for first, stop in segments.bounds]
        values["gram"] = torch.stack([torch.matmul(part.conj(), part.mT) for part in parts], 1)
    return {f"{name}/{sent.index}": value for name, value in values.items()}
