"""Policies over slots, one call each, for those that remember."""

from __future__ import annotations

import math
from typing import Any

import torch
from support.power_links import N, make_policy, make_rayleigh_statistics, perturb
from torch import Tensor

from otafl.core.contracts import Coefficients, Link

F64 = torch.float64

SYMBOLS = 10


def make_slot_link(
    h: list[float], budget: float = 2.0, m: list[float] | None = None, **fields: Any
) -> Link:
    """One trial, one segment of ten symbols, K devices."""
    count = len(h)
    link = Link(
        h=torch.tensor(h, dtype=torch.complex128).view(1, 1, count),
        gain=torch.ones(1, count, dtype=F64),
        budget=torch.full((1, count), budget, dtype=F64),
        symbol_power=torch.tensor(m or [1.0] * count, dtype=F64).view(1, 1, count),
        noise_variance=torch.full((1,), N, dtype=F64),
        transmit_mask=torch.ones(1, count, dtype=torch.bool),
        is_linear=True,
        hyper={},
        segment_lengths=torch.tensor([float(SYMBOLS)], dtype=F64),
        num_symbols=SYMBOLS,
    )
    return perturb(link, **fields)


class Slots:
    """A policy over slots, and the power |p|^2 m [S, Q, K] of each."""

    def __init__(self, name: str, options: dict[str, Any] | None = None, **hyper: Any) -> None:
        """hyper: stackable fields, one number or one for each trial."""
        self.policy = make_policy(name, **(options or {}))
        self.hyper = {
            n: torch.tensor(v if isinstance(v, list) else [v], dtype=F64) for n, v in hyper.items()
        }
        self.state: Any = None

    def __call__(self, link: Link) -> Coefficients:
        link = perturb(link, hyper=self.hyper)
        if self.state is None:
            self.state = self.policy.prepare(make_rayleigh_statistics(link), link.hyper)
        self.state, got = self.policy.compute_coefficients(self.state, link)
        assert self.state is not None
        return got

    def power(self, link: Link) -> Tensor:
        return self(link).p.abs().square() * link.symbol_power


HALF_DB = 10 * math.log10(0.5)


def make_budget_paced(**options: Any) -> Slots:
    """Half of full power over four slots, without bursts."""
    hyper = {"energy_db": HALF_DB, "rounds": 4.0, "burst": 1.0} | options
    given = {n: hyper.pop(n) for n in list(hyper) if n == "spend"}
    return Slots("budget_paced", given, **hyper)
