"""Send over an uplink under limits, and work out what it should receive, symbol by symbol and
device by device.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from support.link_bench import (
    Bench,
    Given,
    add_setup,
    draw_updates,
    make_bench,
    make_given,
)

from otafl.core.contracts import (
    NO_LIMITS,
    Cohort,
    Group,
    LinkReport,
    Payload,
    Received,
    TransmitLimits,
)
from otafl.csi.estimates import Perfect
from otafl.uplink.base import deliver


def send(
    link: Bench, payload: Payload, who: Cohort, limits: TransmitLimits = NO_LIMITS, round: int = 0
) -> tuple[Received, LinkReport]:
    return deliver(link.transport, payload, who, link.channel.get_state(round), round, limits)


def replace_budget(link: Bench, share: torch.Tensor) -> Bench:
    """Give the same uplink this share of the budgets."""
    budget = link.transport.budget
    return add_setup(link, budget=dataclasses.replace(budget, budget=budget.budget * share))


def compute_radiated(link: Bench, report: LinkReport) -> np.ndarray:
    """Return the energy [S, K] in units of the noise variance times symbols."""
    return (report.energy_j / link.transport.budget.unit_energy_j[:, None]).numpy()


def make_table(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@dataclasses.dataclass
class Case:
    """Rows x [K, P] of six devices over an uplink, and what a twin must know of each coordinate."""

    link: Bench
    group: Group
    x: np.ndarray
    mask: np.ndarray
    cell: np.ndarray
    stops: np.ndarray
    limits: TransmitLimits

    def compute_nmse(self, got: np.ndarray, weight: np.ndarray) -> float:
        """Compute the relative squared error of an estimate [P] of the weighted mean."""
        exact = (weight[:, None] * self.x).sum(0)
        if self.group.mask is not None:
            exact = exact / np.maximum((weight[:, None] * self.mask).sum(0), 1e-12)
        return float(((got - exact) ** 2).sum() / (exact**2).sum())


def make_case(link: Bench, name: str, reals: int, uses: int, blocks: int, length: int) -> Case:
    """Make the case "plain", "blocks", "silence", "parts" or "crashes".

    A coordinate has `uses` channel uses, and the channel of "blocks" and "silence" changes every
    `length` channel uses; one that ends within a coordinate keeps its fade to it.
    """
    devices = 6
    cell, stops = np.zeros(reals), np.full(devices, reals)
    mask, limits = np.ones((devices, reals)), NO_LIMITS
    if name in ("blocks", "silence"):
        link = make_given(link, blocks=blocks, block_symbols=length)
        ends = [-(-length * b // uses) for b in range(1, blocks)]
        cell = np.searchsorted(ends, np.arange(reals), side="right")
    if name == "crashes":
        share = make_table([1.0, 0.5, 0.02, 0.8, 0.3, 1.0])
        limits, stops = TransmitLimits(sent_fraction=share), np.floor(share[0].numpy() * reals)
    if name == "parts":
        mask = (np.arange(reals) < np.array([[23], [20], [9], [9], [3], [0]])).astype(float)
    x = draw_updates(devices, reals) * torch.from_numpy(mask)
    group = Group({"a": x}, mask={"a": torch.from_numpy(mask)} if name == "parts" else None)
    return Case(link, group, x.numpy(), mask, cell, stops, limits)


def make_digital(*snr: float, **options: Any) -> Bench:
    """Make one trial of devices whose SNR at a budget of 10 is this, and known; SNR 1, 3, 15 are 1,
    2, 4 bits a channel use."""
    options = {"gain_threshold": 0.0} | options
    link = make_bench(transport="digital", devices=len(snr), **options)
    h = torch.tensor([snr], dtype=torch.complex128).sqrt()[:, :, None, None, None] / 10**0.5
    channel = Given(h, torch.ones(1, len(snr), dtype=torch.float64))
    budget = link.transport.budget
    csi = Perfect(Perfect.Settings(), channel, budget, link.streams, {})  # type: ignore[arg-type]
    return dataclasses.replace(add_setup(link, csi=csi), channel=channel)


def estimate(
    link: Bench,
    report: LinkReport,
    x: np.ndarray,
    weight: np.ndarray,
    stops: np.ndarray | None = None,
    *,
    index: int = 0,
    start: int = 0,
    cell: np.ndarray | None = None,
    quadrature: bool = False,
) -> np.ndarray:
    """Return [P] that the server of the first trial has of a group's signals x [K, P] with the
    saved h, p and eta.

    stops: [K] channel uses of the slot that each device is on air for. start: the group's first
    one. cell: [symbols] segment of each channel use of the group, 0 if not given.
    """
    h, p, eta, active = (
        report.saved_tensors[f"{name}/{index}"][0].numpy() for name in ("h", "p", "eta", "active")
    )
    devices, reals = x.shape
    symbols = -(-reals // 2) if quadrature else reals
    z = link.draw_noise(reals, group=index)[0]
    out = np.zeros(2 * symbols if quadrature else symbols)
    for i in range(symbols):
        q = 0 if cell is None else int(cell[i])
        y = 0j
        for k in range(devices):
            second = x[k, symbols + i] if quadrature and symbols + i < reals else 0.0
            if stops is None or start + i < stops[k]:
                y += h[q, k] * p[q, k] * devices * weight[k] * (x[k, i] + 1j * second)
        y /= np.sqrt(eta[q]) * devices * weight[active[q]].sum()
        out[i] = y.real
        if quadrature:
            out[symbols + i] = y.imag
    on_air = np.array([weight[active[q]].sum() for q in range(len(eta))])
    place = np.zeros(symbols, dtype=int) if cell is None else cell
    spread = 1.0 / np.sqrt(eta[place]) / devices / on_air[place]
    return out[:reals] + z * np.tile(spread, 2 if quadrature else 1)[:reals]
