"""Open-loop power control with fractional path-loss compensation (3GPP TS 38.213, section 7.1.1,
without closed-loop and transport-format terms): in dB, transmit power = min(P_max, P_0 + alpha PL).
PL is the large-scale gain alone, so fading is left to average out; phases are pre-compensated as
superposition needs, and the receive scalar is the one of least mean squared error, as of `full`."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from otafl.core.contracts import Coefficients, Hyper, Link, Statistics
from otafl.power.config import OpenLoopConfig
from otafl.power.scalars import amplitude_bound, cophase, mmse_root, senders


class OpenLoop:
    constraint: ClassVar[Literal["peak", "average", "none"]] = "peak"
    may_be_silent: ClassVar[bool] = False
    wants_variation: ClassVar[bool] = False

    def __init__(self, config: OpenLoopConfig) -> None:
        pass

    def prepare(self, statistics: Statistics, hyper: Hyper) -> None:
        return None

    def coefficients(self, state: None, link: Link) -> tuple[None, Coefficients]:
        target = torch.pow(10.0, link.hyper["p0_db"] / 10.0)
        wanted = target[:, None] * link.gain.pow(-link.hyper["alpha"][:, None])
        share = (wanted / link.budget).clamp_max(1.0).sqrt()[:, None]  # of full amplitude
        amplitude = amplitude_bound(link) * share * link.sends[:, None]
        root_eta = mmse_root(link, amplitude * link.h.abs())
        p = cophase(amplitude, link.h)
        return None, Coefficients(p, root_eta[..., 0].square(), senders(link))
