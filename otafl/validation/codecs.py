"""Laws of codecs, over the uplink if it matters, and of linear codecs, whose output superposes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from otafl.core.contracts import Group, Received, Tensors
from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, Rig
from otafl.validation.checks import Check, check_mean, check_mean_square, check_share, state_law

REALS = 128


ALISTARH = "Alistarh et al. 2017"


def _build_rig(bench: Bench, codec: dict[str, Any], trials: int = 64, devices: int = 4) -> Rig:
    return bench.build_rig(devices, trials, {"codec": codec, "transport": "ideal"})


def _encode(
    rig: Rig, x: Tensor, round: int, memory: Tensors | None = None
) -> tuple[Tensor, Tensors]:
    """Return the encoded rows of x [n, P], and the memory."""
    codec, group = rig.link.codec, Group({"x": x})
    own = codec.init((group,)) if memory is None else memory
    (coded,), own = codec.encode((group,), own, rig.cohort, round, rig.streams)
    return next(iter(coded.tensors.values())), own


BIT_COUNTS = (2, 4, 8)
QSGD = [*product(("l2", "max"), BIT_COUNTS, (4, REALS))]
CASE = "norm={0[0]}, bits={0[1]}, {0[2]} coordinates"

Quantiser = tuple[str, int, int]
"""Norm, bits per coordinate, and coordinates."""


def _qsgd_levels(quantiser: Quantiser, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return |x| in units of norm / s [n, P], and this unit [n, 1]."""
    norm, bits, _ = quantiser
    order = 2 if norm == "l2" else torch.inf
    unit = torch.linalg.vector_norm(x, order, dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    return x.abs() / unit, unit


def _yield_rounds(bench: Bench, quantiser: Quantiser) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield x and Q(x) [n, P] for each round."""
    norm, bits, num_coordinates = quantiser
    rig = _build_rig(bench, {"name": "qsgd", "bits": bits, "norm": norm})
    for round in range(bench.scale_size(16)):
        x = rig.draw_symbols(num_coordinates, round)
        yield x, _encode(rig, x, round)[0]


@state_law("codec qsgd: unbiased", f"{ALISTARH}, Lemma 3.1", CASE, QSGD)
def _qsgd_mean(bench: Bench, quantiser: Quantiser) -> Iterator[Check]:
    """Compare the part of Q(x) along x with |x|^2, and the mean error of each coordinate with 0.

    The errors of one vector are divided by their standard errors.
    """
    parts = [(q * x).sum(1) / x.square().sum(1) for x, q in _yield_rounds(bench, quantiser)]
    yield check_mean(1.0, torch.stack(parts).cpu().numpy())
    norm, bits, num_coordinates = quantiser
    rig = _build_rig(bench, {"name": "qsgd", "bits": bits, "norm": norm}, bench.scale_size(1024))
    x = rig.draw_symbols(num_coordinates, 0)[:1].expand(rig.cohort.num_rows, -1)
    off = (_encode(rig, x, 0)[0] - x).mean(0)
    level, unit = _qsgd_levels(quantiser, x[:1])
    variance = unit.square() * level.frac() * (1.0 - level.frac()) / rig.cohort.num_rows
    some = variance[0] > 1e-12  # with the maximum norm, one coordinate is exact
    score = (off.square() / variance[0])[some].cpu().numpy()
    yield check_mean_square(1.0, score, score.size, "each coordinate")


@state_law("codec qsgd: variance", f"{ALISTARH}; f (1 - f) of a level", CASE, QSGD)
def _qsgd_variance(bench: Bench, quantiser: Quantiser) -> Iterator[Check]:
    """Compare squared errors with (norm / s)^2 f (1 - f) per coordinate.

    f is the fractional part of its level.
    """
    parts = []
    for x, q in _yield_rounds(bench, quantiser):
        level, unit = _qsgd_levels(quantiser, x)
        law = unit.square() * (level.frac() * (1.0 - level.frac()))
        parts.append((q - x).square().sum(1) / law.sum(1))
    yield check_mean(1.0, torch.stack(parts).cpu().numpy())


@state_law("codec uniform: quantisation noise", "step^2 / 12", "{} bits", (4, 6, 8, 10, 12))
def _uniform(bench: Bench, bits: int) -> Iterator[Check]:
    """Compare the error of normal symbols with step^2 / 12; the two ends are exact.

    The step is (max - min) / (2^b - 1).
    """
    rig = _build_rig(bench, {"name": "uniform", "bits": bits}, bench.scale_size(64))
    x = rig.draw_symbols(2048, 0)
    step = (x.amax(1) - x.amin(1)) / (2**bits - 1)
    off = (_encode(rig, x, 0)[0] - x).square().sum(1) / 2046
    yield check_mean(1.0, (off / (step.square() / 12.0)).cpu().numpy(), bias=1e-3)


@state_law("codec obda: error of the majority vote", "Zhu et al. 2021; Q(|v| sqrt(eta / N))")
def _votes(bench: Bench) -> Iterator[Check]:
    """Count wrong votes on the signs of five devices over channel inversion, with P at -8 dB.

    They follow Q(|v| sqrt(P / N)) by the size of the vote. On two quadratures each has half the
    power.
    """
    for quadrature in (False, True):
        point = {
            "channel": {"name": "awgn", "snr_db": -8.0},
            "power": "ci",
            "codec": "obda",
            "transport": {"name": "over_the_air", "quadrature": quadrature},
        }
        rig = bench.build_rig(5, 16, point)
        votes, wrong = [], []
        for round in range(bench.scale_size(16)):
            x = rig.draw_symbols(1024, round)
            vote = torch.where(x >= 0, 1.0, -1.0).view(rig.num_trials, 5, -1).sum(1)
            decided = rig.send(x, round)[0]
            votes.append(vote.abs().cpu().numpy())
            wrong.append((decided.sign() != vote.sign()).cpu().numpy())
        size, missed = np.stack(votes), np.stack(wrong)
        power = db_to_linear(-8.0) / (2.0 if quadrature else 1.0)
        for v in (1, 3, 5):
            law = float(stats.norm.sf(v * math.sqrt(2.0 * power)))
            here = size == v
            case = f"|v|={v}, {'two quadratures' if quadrature else 'one real'}"
            yield check_share(law, int(missed[here].sum()), int(here.sum()), case)


LINEAR_REALS = 96
CHARIKAR = "Charikar, Chen, Farach-Colton 2002; Rothchild et al. 2020"

RATIOS = (0.25, 0.5, 1.0)
"""Buckets of a sketch per coordinate."""


def _decode(rig: Rig, tensors: Tensors) -> Tensors:
    """Return the decoded mean of one group, the tensors [S, ...] that the server received."""
    ones = next(iter(tensors.values())).new_ones(rig.num_trials)
    return rig.link.codec.decode(Received((tensors,), (ones,), None, None)).mean[0]


def _encode_linear(rig: Rig, tensors: Tensors, round: int) -> Tensors:
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
        x = rig.draw_symbols(LINEAR_REALS, round).abs()
        drawn.append((x[0], _decode(rig, _encode_linear(rig, {"x": x}, round))["x"][0]))
    return drawn


@state_law("codec count_sketch: unbiased", CHARIKAR, "ratio {:g}", RATIOS)
def _sketch_mean(bench: Bench, ratio: float) -> Iterator[Check]:
    """Compare the part of the estimate along x with |x|^2."""
    parts = [(found @ x) / (x @ x) for x, found in _draw_sketches(bench, ratio)]
    yield check_mean(1.0, torch.stack(parts).cpu().numpy())


@state_law("codec count_sketch: variance", CHARIKAR, "ratio {:g}", RATIOS)
def _sketch_variance(bench: Bench, ratio: float) -> Iterator[Check]:
    """Compare squared errors with (|x|^2 - x_i^2) / w, added up over the coordinates."""
    buckets = round(ratio * LINEAR_REALS)
    ratios = [
        (found - x).square().sum() / ((LINEAR_REALS - 1) * x.square().sum() / buckets)
        for x, found in _draw_sketches(bench, ratio)
    ]
    yield check_mean(1.0, torch.stack(ratios).cpu().numpy())
