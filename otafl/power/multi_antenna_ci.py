"""Channel inversion behind a receive vector f: p_k = sqrt(eta) (f^H h_k)^* / |f^H h_k|^2 with eta =
min_k P_k |f^H h_k|^2 / m_k (Chen, Qin, Li 2018, "A Uniform-Forcing Transceiver Design for
Over-the-Air Function Computation"). The receiver has combined the antennas before a policy acts, so
this is `ci` on f^H h; its f is that of uniform forcing, which makes eta as large as it finds."""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.ci import invert_by_weakest
from otafl.power.config import MultiAntennaCiConfig


class MultiAntennaCi:
    constraint: ClassVar[Literal["peak", "average", "none"]] = "peak"
    may_be_silent: ClassVar[bool] = False
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: MultiAntennaCiConfig) -> None:
        pass

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        return None, invert_by_weakest(link)
