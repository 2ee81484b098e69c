"""Laws of codecs, over the uplink if it matters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from otafl.core.contracts import Group
from otafl.core.units import db_to_linear
from otafl.validation.bench import Bench, Rig
from otafl.validation.checks import (
    Check,
    check_exact,
    check_mean,
    check_mean_square,
    check_share,
    state_law,
)

REALS = 128
ALISTARH = "Alistarh et al. 2017"


def _build_rig(bench: Bench, codec: dict[str, Any], trials: int = 64) -> Rig:
    return bench.build_rig(4, trials, {"codec": codec, "transport": "ideal"})


def _encode(rig: Rig, x: Tensor, round: int) -> Tensor:
    """Return the encoded rows of x [n, P]."""
    codec, group = rig.link.codec, Group({"x": x})
    (coded,), _ = codec.encode((group,), codec.init((group,)), rig.cohort, round, rig.streams)
    return next(iter(coded.tensors.values()))


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
        yield x, _encode(rig, x, round)


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
    off = (_encode(rig, x, 0) - x).mean(0)
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
    off = (_encode(rig, x, 0) - x).square().sum(1) / 2046
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


@state_law("codec shared_subset: ages", "Du et al. 2025; (P - k) / k at random, turns for r = P")
def _ages(bench: Bench) -> Iterator[Check]:
    """Compare the rounds since a coordinate was sent with those of two rules.

    At random they are geometric. If age alone decides, all of P coordinates take turns.
    """
    keep, rounds = 16, bench.scale_size(512)
    for rule in ({"rule": "random"}, {"rule": "age_top_k", "largest": 1.0}):
        codec = {"name": "shared_subset", "keep": keep / REALS, "error_feedback": False} | rule
        rig = _build_rig(bench, codec, 1)
        sent = [rig.send(rig.draw_symbols(REALS, t), t)[0][0] != 0 for t in range(rounds)]
        gaps = [np.diff(np.flatnonzero(row)) for row in torch.stack(sent).T.cpu().numpy()]
        waits = np.concatenate(gaps) - 1.0
        expected = (REALS - keep) / keep
        if rule["rule"] == "random":
            yield check_mean(expected, waits, "random", bias=expected * REALS / keep / rounds)
        else:
            yield check_exact(expected, float(waits.min()), case="shortest turn")
            yield check_exact(expected, float(waits.max()), case="longest turn")
