"""An uplink with impairments, and one payload of unequal weights over it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from support.link_bench import WEIGHTS, Bench, add_setup, draw_updates, make_cohort

from otafl.core.contracts import Group, LinkReport
from otafl.uplink.impairments.impairments import Impairments

K = 6


P = 41


def make_impaired(link: Bench, **settings: Any) -> Bench:
    """The same uplink with these impairments in every trial."""
    size = len(link.budget)
    made = Impairments([Impairments.Settings(**settings)] * size, None, link.streams)
    return add_setup(link, impairments=made)


def deliver(
    link: Bench, weighting: str = "mean", round: int = 3, num_coordinates: int = P
) -> tuple[np.ndarray, np.ndarray, LinkReport]:
    """Estimate [S, P], signals [S, K, P] and report of one group with unequal weights."""
    size = len(link.budget)
    x = draw_updates(K * size, num_coordinates)
    group = Group({"a": x}, weighting="none" if weighting == "none" else "mean")
    received, report = link.deliver(
        (group,), make_cohort((K,) * size, weight=WEIGHTS * size), round
    )
    return received.mean[0]["a"].numpy(), x.numpy().reshape(size, K, num_coordinates), report


def map_cells(block_symbols: int | None, tensors: int, groups: int, symbols: int) -> np.ndarray:
    """[symbols] the (b, f) of each channel use, as one number: a block's groups fill one after the
    other, evenly."""
    length = block_symbols or symbols
    out = []
    for i in range(symbols):
        block, inside = divmod(i, length)
        here = min(length, symbols - block * length)
        group = next(f for f in range(groups) if inside < here * (f + 1) // groups)
        out.append(block * groups + group)
    return np.array(out)


def select_rows(
    report: LinkReport, x: np.ndarray, s: int = 0
) -> tuple[np.ndarray, float, np.ndarray]:
    """Complex gains h p / sqrt(eta) [K], eta and K w_k x_k [K, P] of one trial, one segment."""
    saved = {name.split("/")[0]: value.numpy()[s] for name, value in report.saved_tensors.items()}
    eta = float(saved["eta"][0])
    w = np.array(WEIGHTS) / sum(WEIGHTS)
    return saved["h"][0] * saved["p"][0] / math.sqrt(eta), eta, K * w[:, None] * x[s]
