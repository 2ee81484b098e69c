"""Full power: every device transmits at its budget, and the receive scalar minimises the mean
squared error of uncorrelated symbols, sum m (c - 1)^2 + N / eta."""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import FullConfig
from otafl.power.scalars import amplitude_bound, cophase


class Full:
    constraint: ClassVar[Literal["peak", "average"]] = "peak"
    may_be_silent: ClassVar[bool] = False

    def __init__(self, config: FullConfig) -> None:
        pass

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        amplitude = amplitude_bound(link) * link.sends[:, None]
        arrives = amplitude * link.h.abs()  # sqrt(q)
        signal = (link.power * arrives).sum(-1)
        energy = (link.power * arrives.square()).sum(-1)
        root_eta = (link.noise[:, None] + energy) / signal.clamp_min(1e-30)
        active = link.sends[:, None].expand_as(amplitude)
        return None, Coefficients(cophase(amplitude, link.h), root_eta.square(), active)
