"""Blind over-the-air computation: devices know nothing of their channels and send with one real
amplitude sqrt(E), E = min_k P_k / m_k; the server, with A antennas, combines with the sum of
channels (Amiri, Duman, Gunduz 2021, "Blind Federated Edge Learning", eq. 12):

    estimate = Re( sum_a conj(sum_k h_ka) y_a ) / (K A sqrt(E) beta)

With the unit combiner f = sum_k h_k / |sum_k h_k| of `receiver: mrc` the sum over the devices of
f^H h_k is |sum_k h_k|, so sqrt(eta) = A beta sqrt(E) / |sum_k h_k|. beta is the mean large-scale
gain of the devices that send, which makes the estimate unbiased where all have it. Fading must be
independent over devices and of mean zero: then interference of the devices with each other
falls as 1/A."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import BlindConfig
from otafl.power.scalars import LARGEST, TINY, reference_power, senders


class Blind:
    constraint: ClassVar[Literal["peak", "average", "none"]] = "peak"
    may_be_silent: ClassVar[bool] = False
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: BlindConfig) -> None:
        pass

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        active = senders(link)
        sends = link.sends.to(link.gain.dtype)
        beta = (link.gain * sends).sum(1) / sends.sum(1).clamp_min(1.0)
        amplitude = reference_power(link, "max").rsqrt()  # sqrt(E)
        total = (link.h * active).sum(-1).abs()
        root_eta = link.antennas * beta[:, None] * amplitude[..., 0] / total.clamp_min(TINY)
        root_eta = torch.where(total > 0, root_eta.clamp_max(LARGEST), 1.0)  # nobody sends
        p = torch.where(active, amplitude, 0.0).to(link.h.dtype)
        return None, Coefficients(p, root_eta.square(), active)
