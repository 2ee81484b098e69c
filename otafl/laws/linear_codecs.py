"""Laws of what superposes: count sketches, low-rank factors with a power split, and slopes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from otafl.algorithms.zeroth_order import ZerothOrder
from otafl.codecs.laser import PowerSplit
from otafl.core.contracts import Context, Group, Received, Tensors
from otafl.core.rng import declare_family
from otafl.laws.bench import Bench, Rig
from otafl.laws.checks import Check, check_at_most, check_mean, state_law

NOISE = declare_family("linear_codecs_noise", __name__)

REALS = 96
CHARIKAR = "Charikar, Chen, Farach-Colton 2002; Rothchild et al. 2020"

SKETCHES = [*product((0.25, 1.0), (1, 4)), (0.5, 1)]
SKETCH_CASE = "ratio {0[0]:g}, rows {0[1]}"

Sketch = tuple[float, int]
"""Buckets per coordinate, and rows."""


def _decode(rig: Rig, tensors: Tensors) -> Tensors:
    """Return the decoded mean of one group, the tensors [S, ...] that the server received."""
    ones = next(iter(tensors.values())).new_ones(rig.num_trials)
    return rig.link.codec.decode(Received((tensors,), (ones,), None, None)).mean[0]


def _encode(rig: Rig, tensors: Tensors, round: int) -> Tensors:
    """Return the encoded tensors of the only device of each trial."""
    group, codec = Group(tensors), rig.link.codec
    (coded,), _ = codec.encode((group,), codec.init((group,)), rig.cohort, round, rig.streams)
    return coded.tensors


@functools.lru_cache(maxsize=len(SKETCHES))
def _draw_sketches(bench: Bench, sketch: Sketch) -> list[tuple[Tensor, Tensor]]:
    """Draw x and its estimate [P] for each round, in which buckets and signs are new.

    All coordinates are positive, so that a missing sign does not average out.
    """
    ratio, rows = sketch
    codec = {"name": "count_sketch", "ratio": ratio, "rows": rows}
    rig = bench.build_rig(1, 1, {"codec": codec, "transport": "ideal"})
    drawn = []
    for round in range(bench.scale_size(2048)):
        x = rig.draw_symbols(REALS, round).abs()
        drawn.append((x[0], _decode(rig, _encode(rig, {"x": x}, round))["x"][0]))
    return drawn


@state_law("codec count_sketch: unbiased", CHARIKAR, SKETCH_CASE, SKETCHES)
def _sketch_mean(bench: Bench, sketch: Sketch) -> Iterator[Check]:
    """Compare the part of the estimate along x with |x|^2."""
    parts = [(found @ x) / (x @ x) for x, found in _draw_sketches(bench, sketch)]
    yield check_mean(1.0, torch.stack(parts).cpu().numpy())


@state_law("codec count_sketch: variance", CHARIKAR, SKETCH_CASE, SKETCHES)
def _sketch_variance(bench: Bench, sketch: Sketch) -> Iterator[Check]:
    """Compare squared errors with (|x|^2 - x_i^2) / (w r), added up over the coordinates.

    With r rows of w buckets each, their product is the number of buckets.
    """
    ratio, rows = sketch
    buckets = round(ratio * REALS / rows) * rows
    ratios = [
        (found - x).square().sum() / ((REALS - 1) * x.square().sum() / buckets)
        for x, found in _draw_sketches(bench, sketch)
    ]
    yield check_mean(1.0, torch.stack(ratios).cpu().numpy())


SPLITS: tuple[PowerSplit, ...] = ("none", "norm", "optimal")
SPLIT = "Makkuva et al. 2024, power allocation by norms; Lagrange multipliers"
LAYERS = {"wide": (8, 200), "square": (16, 16), "bias": (6,)}
SCALES = {"wide": 1.0, "square": 5.0, "bias": 8.0}
POWER, VARIANCE = 3.0, 0.4


def _send_factors(bench: Bench, split: PowerSplit) -> tuple[Tensor, Tensor, Tensor]:
    """Send factors of layers twice, without noise in round 0 and with noise in round 2.

    Returns the norms |F_b| [B, S], the coordinates d_b [B] and the squared error of all decoded
    tensors [S] at power 1 and noise variance 1.
    """
    codec = {"name": "laser", "rank": 2, "power_split": split, "error_feedback": False}
    rig = bench.build_rig(1, bench.scale_size(2048), {"codec": codec, "transport": "ideal"})
    draw = {
        name: rig.streams.draw_normal(NOISE / name, 0, shape) * SCALES[name]
        for name, shape in LAYERS.items()
    }
    first = _encode(rig, draw, 0)
    exact = _decode(rig, first)
    sent = _encode(rig, draw, 2)
    total = sum((block.flatten(1).square().sum(1) for block in sent.values()), torch.zeros(()))
    noisy = {}
    for name, block in sent.items():
        level = (VARIANCE * total / POWER).sqrt().view(-1, *[1] * (block.dim() - 1))
        shape = tuple(block.shape[1:])
        noisy[name] = block + level * rig.streams.draw_normal(NOISE / "air" / name, 0, shape)
    found = _decode(rig, noisy)
    off = [(found[name] - exact[name]).flatten(1).square().sum(1) for name in LAYERS]
    norms = torch.stack([block.flatten(1).norm(dim=1) for block in first.values()])
    lengths = norms.new_tensor([block[0].numel() for block in first.values()])
    return norms, lengths, torch.stack(off).sum(0) * POWER / VARIANCE


def _compute_split_error(norms: Tensor, lengths: Tensor, split: PowerSplit) -> Tensor:
    """Compute sum_b d_b |F_b|^2 / s_b [S], with the shares s_b of a split."""
    root = lengths.sqrt()[:, None]
    part = {"none": norms.square(), "norm": norms, "optimal": root * norms}[split]
    share = part / part.sum(0)
    return (lengths[:, None] * norms.square() / share).sum(0)


@state_law("codec laser: error by the power split", SPLIT, "split {}", SPLITS)
def _split_error(bench: Bench, split: PowerSplit) -> Iterator[Check]:
    """Compare the error of decoded layers with (v / P) sum_b d_b |F_b|^2 / s_b.

    Factors of 8 x 200 and 16 x 16 weights, and a vector, have unequal lengths and norms.
    """
    norms, lengths, error = _send_factors(bench, split)
    law = _compute_split_error(norms, lengths, split)
    yield check_mean(1.0, (error / law).cpu().numpy())


@state_law("codec laser: the optimal split", SPLIT)
def _optimal_split(bench: Bench) -> Iterator[Check]:
    """Compare the error with (v / P) (sum_b sqrt(d_b) |F_b|)^2, which no other split is below."""
    norms, lengths, error = _send_factors(bench, "optimal")
    least = (lengths.sqrt()[:, None] * norms).sum(0).square()
    yield check_mean(1.0, (error / least).cpu().numpy(), case="optimal")
    for split in SPLITS[:2]:
        other = _compute_split_error(norms, lengths, split)
        yield check_at_most(1.0, float((least / other).max()), case=f"least over {split}")


ZEROTH = "weights move by (eta / q) sum_j z_j u_j, with E|u_j|^2 = d"
COUNTS = (1, 4, 64)


@state_law("zeroth_order: noise of the slopes", ZEROTH, "q={}", COUNTS)
def _slopes(bench: Bench, count: int) -> Iterator[Check]:
    """Compare the squared step along noise of variance v with eta^2 v d / q."""
    size, eta, trials = 50, 0.3, bench.scale_size(2048)
    rig = bench.build_rig(1, trials, {"transport": "ideal"})
    model: Any = SimpleNamespace(num_params=size, shapes={"w": (size,)})
    method = ZerothOrder(ZerothOrder.Settings(directions=count), model, 1)
    noise = rig.streams.draw_normal(NOISE / "slopes" / count, 0, (count,)) * VARIANCE**0.5
    ones = noise.new_ones(trials)
    hyper = {"learning_rate": eta * ones, "decay": 0.0 * ones}
    received = Received(({"slopes": noise},), (ones,), None, None)
    server = {"model": noise.new_zeros(trials, size)}
    context = Context(rig.cohort, hyper, rig.streams, 0)
    moved = method.update_server(server, received, context)["model"]
    law = eta**2 * VARIANCE * size / count
    yield check_mean(1.0, moved.square().sum(1).cpu().numpy() / law)
