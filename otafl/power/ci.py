"""Channel inversion by the weakest device: p_k = sqrt(eta) / h_k with eta = min_k P_k g_k / m_k, so
every device arrives with c_k = 1 and the error is noise alone."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import CiConfig
from otafl.power.scalars import amplitude_bound, cophase, inversion, senders

WEAKEST = 1e-15
"""Least sqrt(eta): a device whose channel is zero cannot be inverted, and must not make 0 / 0."""


class ChannelInversion:
    constraint: ClassVar[Literal["peak", "average", "none"]] = "peak"
    may_be_silent: ClassVar[bool] = False
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: CiConfig) -> None:
        pass

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        return None, invert_by_weakest(link)


def invert_by_weakest(link: Link) -> Coefficients:
    """c_k = 1 for all devices that send, at the gain of the one that reaches least."""
    active = senders(link)
    reach = torch.where(active, amplitude_bound(link) * link.h.abs(), math.inf)
    root_eta = reach.amin(-1, keepdim=True).clamp_min(WEAKEST)
    root_eta = torch.where(root_eta.isinf(), 1.0, root_eta)  # nobody sends
    p = cophase(inversion(root_eta, link), link.h)
    return Coefficients(p, root_eta[..., 0].square(), active)
