"""Channel inversion by the weakest device: p_k = sqrt(eta) / h_k with eta = min_k P_k g_k / m_k, so
every device arrives with c_k = 1 and the error is noise alone."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch

from otafl.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import CiConfig
from otafl.power.scalars import amplitude_bound, cophase


class ChannelInversion:
    constraint: ClassVar[Literal["peak", "average"]] = "peak"
    may_be_silent: ClassVar[bool] = False

    def __init__(self, config: CiConfig) -> None:
        pass

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        gain = link.h.abs()
        active = link.sends[:, None].expand_as(gain)
        reach = torch.where(active, amplitude_bound(link) * gain, math.inf)
        root_eta = reach.amin(-1, keepdim=True)
        root_eta = torch.where(root_eta.isinf(), 1.0, root_eta)  # nobody sends
        amplitude = torch.where(active, root_eta / gain.clamp_min(1e-20), 0.0)
        return None, Coefficients(cophase(amplitude, link.h), root_eta[..., 0].square(), active)
