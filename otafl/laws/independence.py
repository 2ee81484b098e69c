"""Laws of independence of frequency-selective channels of devices at rest."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from otafl.laws.bench import Bench
from otafl.laws.checks import Check, Law, largest

NAMES = ("tdl-a", "tdl-e", "cdl-c", "umi")
"""Taps without and with a line of sight, rays of a profile, and those of a drop."""

DEVICES, TRIALS, BLOCKS = 40, 4, 2


def list_laws() -> Iterator[Law]:
    """List the laws of the channels."""
    for name in NAMES:
        checks = functools.partial(_independence, name=name)
        yield Law(f"channel {name}: independence", "rounds, blocks, trials, devices", checks)


def _independence(bench: Bench, name: str) -> Iterator[Check]:
    """Compare the means of h h'^* and h h' of neighbours with 0.

    Products of independent circular numbers of power one have the variance 1/2 in each part.
    """
    section = {"name": name, "block_symbols": 10, "subcarrier_groups": 1}
    rig = bench.build_rig(DEVICES, TRIALS, {"channel": section, "power": "full"})
    states = (rig.link.channel.get_state(round) for round in range(bench.scale_size(64)))
    each = [state.extend_to(10 * BLOCKS)[:, :, 0, :, 0].cpu().numpy() for state in states]
    h = np.stack(each)  # [R, S, K, B]
    pairs = {
        "rounds": (h[:-1], h[1:]),
        "blocks": (h[..., :-1], h[..., 1:]),
        "next round's block": (h[:-1, ..., 1:], h[1:, ..., :-1]),
        "trials": (h[:, :-1], h[:, 1:]),
        "devices": (h[:, :, :-1], h[:, :, 1:]),
    }
    for case, (one, other) in pairs.items():
        means = np.array([(one * second).mean() for second in (other.conj(), other)])
        deviations = math.sqrt(2.0 * one.size) * means
        yield largest(np.stack([deviations.real, deviations.imag]), case)
