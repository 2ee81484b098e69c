"""A digital uplink over channels that the test gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from support.link_bench import make_cohort
from torch import Tensor

from otafl.codecs.quantisers import Identity, Uniform
from otafl.core.contracts import ChannelState, Cohort, Group, LinkBudget, LinkReport, Received
from otafl.core.rng import Streams
from otafl.core.settings import list_stackable_fields
from otafl.power.least_error import Full
from otafl.receivers.base import Scalar
from otafl.uplink.base import Parts, deliver
from otafl.uplink.digital.digital import Digital
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.transmission import Alignment

BANDWIDTH, WATT = 2e6, 1e-3
"""Hertz, and watts of unit power."""


class Estimate:
    """An estimate of h made up by the test; None: h itself."""

    num_pilot_symbols: ClassVar[int] = 0
    variance = None

    def __init__(self, h_hat: Tensor | None) -> None:
        self._h_hat = h_hat

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h if self._h_hat is None else self._h_hat


class Bench:
    """S trials over K devices with amplitudes h [S, K] (or any [S, K, A, B, F]), budgets 1."""

    def __init__(
        self,
        h: Any,
        h_hat: Any = None,
        codec: Any = None,
        budget: Any = None,
        impairments: Impairments.Settings | None = None,
        seed: int = 0,
        per_trial: dict[str, Sequence[float]] | None = None,
        statistics: Any = None,
        **options: Any,
    ) -> None:
        self.h, size = to_channel(h), len(to_channel(h))
        config = Digital.Settings(**{"gain_threshold": 0.0} | options)
        self.streams = Streams([seed] * size, range(size), dtype=torch.float64)
        ones = torch.ones(self.h.shape[:2]).double()
        one = ones[:, 0]
        hyper = {
            name: one * getattr(config, name) for name in list_stackable_fields(Digital.Settings)
        } | {name: torch.tensor(value).double() for name, value in (per_trial or {}).items()}
        power = ones if budget is None else torch.as_tensor(budget).double().expand_as(ones)
        self.gain = ones
        csi: Any = Estimate(None if h_hat is None else to_channel(h_hat))
        made = Impairments([impairments or Impairments.Settings()] * size, None, self.streams)
        parts = Parts(
            budget=LinkBudget(power, ones, one * WATT, one * BANDWIDTH, one > 0),
            alignment=Alignment(csi, Scalar(), Full(), statistics, {}, made),
            codec=Identity(Identity.Settings(), {}, self.streams) if codec is None else codec,
            streams=self.streams,
            hyper=hyper,
        )
        self.link = Digital(config, parts)

    def deliver(
        self, *payload: Group, who: Cohort | None = None, round: int = 0
    ) -> tuple[Received, LinkReport]:
        if who is None:
            who = make_cohort((self.h.shape[1],) * len(self.h), self.h.shape[1])
        return deliver(self.link, payload, who, ChannelState(self.h, self.gain), round)


def to_channel(h: Any) -> Tensor:
    h = torch.as_tensor(np.asarray(h)).to(torch.complex128)
    return h if h.dim() == 5 else h[:, :, None, None, None]


def draw_rows(count: int, num_coordinates: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((count, num_coordinates)))


def compute_amplitude(snr: Any) -> np.ndarray:
    return np.sqrt(np.asarray(snr, dtype=float))


def make_uniform(bits: int) -> Uniform:
    return Uniform(Uniform.Settings(bits=bits), {}, Streams([0], [0], dtype=torch.float64))
