"""Full power: every device transmits at its budget, and the receive scalar minimises the mean
squared error of uncorrelated symbols, sum m (c - 1)^2 + N / eta."""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import FullConfig
from otafl.power.scalars import amplitude_bound, cophase, mmse_root, senders


class Full:
    constraint: ClassVar[Literal["peak", "average", "none"]] = "peak"
    may_be_silent: ClassVar[bool] = False
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: FullConfig) -> None:
        pass

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        amplitude = amplitude_bound(link) * link.sends[:, None]
        root_eta = mmse_root(link, amplitude * link.h.abs())
        p = cophase(amplitude, link.h)
        return None, Coefficients(p, root_eta[..., 0].square(), senders(link))
