"""No power control: ideal gains, a bound for the others. Every device arrives with c_k = 1 whatever
that takes, p_k = sqrt(eta) / h_k, and the noise is that of the average device at full power, eta
= mean_k(P_k g_k) / mean_k(m_k) over the devices that send. Budgets are not kept."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import NoneConfig
from otafl.power.scalars import TINY, cophase, inversion, senders


class NoPowerControl:
    constraint: ClassVar[Literal["peak", "average", "none"]] = "none"
    may_be_silent: ClassVar[bool] = False
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: NoneConfig) -> None:
        pass

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        active = senders(link)
        received = (link.budget[:, None] * link.h.abs().square() * active).sum(-1, keepdim=True)
        needed = (link.power * active).sum(-1, keepdim=True)
        root_eta = (received / needed.clamp_min(TINY)).sqrt()
        root_eta = torch.where(received > 0, root_eta, 1.0)  # nobody sends
        p = cophase(inversion(root_eta, link), link.h)
        return None, Coefficients(p, root_eta[..., 0].square(), active)
