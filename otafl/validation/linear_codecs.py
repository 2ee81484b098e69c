"""Laws of what superposes: count sketches, low-rank factors with a power split, and slopes."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from otafl.core.contracts import Group, Received, Tensors
from otafl.validation.bench import Bench, Rig
from otafl.validation.checks import Check, check_mean, state_law

REALS = 96
CHARIKAR = "Charikar, Chen, Farach-Colton 2002; Rothchild et al. 2020"

RATIOS = (0.25, 0.5, 1.0)
"""Buckets of a sketch per coordinate."""


def _decode(rig: Rig, tensors: Tensors) -> Tensors:
    """Return the decoded mean of one group, the tensors [S, ...] that the server received."""
    ones = next(iter(tensors.values())).new_ones(rig.num_trials)
    return rig.link.codec.decode(Received((tensors,), (ones,), None, None)).mean[0]


def _encode(rig: Rig, tensors: Tensors, round: int) -> Tensors:
    """Return the encoded tensors of the only device of each trial."""
    group, codec = Group(tensors), rig.link.codec
    (coded,), _ = codec.encode((group,), codec.init((group,)), rig.cohort, round, rig.streams)
    return coded.tensors


@functools.lru_cache(maxsize=len(RATIOS))
def _draw_sketches(bench: Bench, ratio: float) -> list[tuple[Tensor, Tensor]]:
    """Draw x and its estimate [P] for each round, in which buckets and signs are new.

    All coordinates are positive, so that a missing sign does not average out.
    """
    codec = {"name": "count_sketch", "ratio": ratio}
    rig = bench.build_rig(1, 1, {"codec": codec, "transport": "ideal"})
    drawn = []
    for round in range(bench.scale_size(2048)):
        x = rig.draw_symbols(REALS, round).abs()
        drawn.append((x[0], _decode(rig, _encode(rig, {"x": x}, round))["x"][0]))
    return drawn


@state_law("codec count_sketch: unbiased", CHARIKAR, "ratio {:g}", RATIOS)
def _sketch_mean(bench: Bench, ratio: float) -> Iterator[Check]:
    """Compare the part of the estimate along x with |x|^2."""
    parts = [(found @ x) / (x @ x) for x, found in _draw_sketches(bench, ratio)]
    yield check_mean(1.0, torch.stack(parts).cpu().numpy())


@state_law("codec count_sketch: variance", CHARIKAR, "ratio {:g}", RATIOS)
def _sketch_variance(bench: Bench, ratio: float) -> Iterator[Check]:
    """Compare squared errors with (|x|^2 - x_i^2) / w, added up over the coordinates."""
    buckets = round(ratio * REALS)
    ratios = [
        (found - x).square().sum() / ((REALS - 1) * x.square().sum() / buckets)
        for x, found in _draw_sketches(bench, ratio)
    ]
    yield check_mean(1.0, torch.stack(ratios).cpu().numpy())
