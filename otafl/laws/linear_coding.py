"""Laws of FedRLR's random linear coding, with given gains and noise.

Squared errors are those of the Frobenius norm, over that of the mean of the devices' models. Closed
forms of equal models are written down here apart from the code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from otafl.factorised import random_linear_coding
from otafl.factorised.lowrank import LowRank, to_dense
from otafl.laws.bench import Bench
from otafl.laws.checks import Check, check_exact, check_mean, check_ratios, largest, state_law
from otafl.laws.coded_models import (
    F64,
    draw_coders,
    draw_gains,
    draw_points,
    make_streams,
    send_models,
)

FEDRLR = "Xue, Lau 2023"

EQUAL, MIXED, ONE = (1.0,) * 4, (5.0, 2.0, 1.0, 0.5), (1.0, 1e-9, 1e-9, 1e-9)
"""Singular values."""


def _check_means(samples: Tensor, law: Tensor | float, case: str) -> Check:
    """Check the means of many numbers over the first dimension by their own standard errors."""
    deviation = samples.std(0) / len(samples) ** 0.5
    off = ((samples.mean(0) - law).abs() - 1e-13).clamp_min(0.0)
    return largest((off / deviation.clamp_min(1e-300)).cpu().numpy(), case)


@state_law("algorithm fedrlr: moments of the coder", f"{FEDRLR}, eq. 21", "R={}", (2, 4))
def _coder_moments(bench: Bench, rank: int) -> Iterator[Check]:
    """Read the coders F of two devices from U F at U = V = Sigma = 1.

    Entries are +-1/sqrt(R), equal for U and V. F F^T has the mean 1, and entries of variance 1/R
    off the diagonal. Coders of devices and trials are independent.
    """
    streams = make_streams(bench, bench.scale_size(8000))
    eye = torch.eye(rank, dtype=F64, device=bench.torch_device)[None]
    coded = send_models(streams, LowRank(eye, torch.ones_like(eye[:, 0]), eye), 2).coded
    f = coded["u0"] * math.sqrt(2.0)
    yield check_exact(0.0, float((coded["u0"] - coded["v0"]).abs().max()), 1e-12, "U and V differ")
    yield check_exact(0.0, float((f.abs() - rank**-0.5).abs().max()), 1e-12, "magnitude")
    yield _check_means(f.flatten(0, 1), 0.0, "entries")
    row, column = torch.triu_indices(rank, rank, 1)
    off = (f @ f.mT).flatten(0, 1)[:, row, column]
    yield _check_means(off, 0.0, "F F^T off the diagonal")
    yield _check_means(off.square(), 1.0 / rank, "its square")
    yield _check_means(f[:, 0] @ f[:, 1].mT, 0.0, "two devices")
    yield _check_means(f[0::2] @ f[1::2].mT, 0.0, "two trials")


@state_law(
    "algorithm fedrlr: coders of layers and rounds", f"{FEDRLR}; E F F'^T = 0", "R={}", (2, 4)
)
def _coders_apart(bench: Bench, rank: int) -> Iterator[Check]:
    """Compare products F F'^T of coders of two layers and of two rounds.

    Entries have the mean 0 and the variance 1/R, as those of independent coders.
    """
    streams = make_streams(bench, bench.scale_size(8000))
    first, later = (draw_coders(streams, rank, round) for round in range(2))
    pairs = {"layers": first, "rounds": (first[0], later[0])}
    for case, (one, other) in (pairs | {"both": (first[0], later[1])}).items():
        product = one @ other.mT
        yield _check_means(product, 0.0, case)
        yield _check_means(product.square(), 1.0 / rank, f"{case}, squares")


@state_law("algorithm fedrlr: energy of the factors", f"{FEDRLR}; w_k sum s, E |X_U|^2 = sum s")
def _factor_energy(bench: Bench) -> Iterator[Check]:
    """Compare the energies of both factors of each device, and that of the sum over ten devices."""
    streams = make_streams(bench, bench.scale_size(4000))
    sent = send_models(streams, draw_points(bench, MIXED, 12, 9, 1), 10)
    for name, block in sent.coded.items():
        energy = block.square().sum((2, 3)) * 10.0 / sum(MIXED)
        yield check_exact(0.0, float((energy - 1.0).abs().max()), 1e-11, name)
        yield check_mean(
            sum(MIXED), block.sum(1).square().sum((1, 2)).cpu().numpy(), f"{name}, sum"
        )


MEANS = ("unit gains", "GBMA", "truncated inversion", "a fade for each factor")


@state_law("algorithm fedrlr: mean model", f"{FEDRLR}, eq. 28; pi/4 for two fades", "{}", MEANS)
def _mean_model(bench: Bench, case: str) -> Iterator[Check]:
    """Compare E[Theta_0] of five different models, with noise, with the mean of the models."""
    devices, streams = 5, make_streams(bench, bench.scale_size(20_000))
    point = draw_points(bench, (2.0, 0.7), 4, 3, devices)
    left = draw_gains(streams, devices, case != "unit gains")
    right = left
    if case == "truncated inversion":
        left = right = (left.square() >= 0.7).to(F64)
    elif case == "a fade for each factor":
        right = draw_gains(streams, devices, True, "other gain")
    on_air = (left != 0).any(1)
    sent = send_models(streams, point, devices)
    found = sent.combine(streams, {"u0": left, "v0": right}, 0.02 / devices)[on_air]
    target = to_dense(point).mean(0)
    law = math.pi / 4.0 if case == "a fade for each factor" else 1.0
    yield _check_means(found, law * target, "entries")
    along = (found * target).sum((1, 2)) / target.square().sum()
    yield check_mean(law, along.cpu().numpy(), "along the mean")


def _compute_distortion(s: Sequence[float], devices: int, faded: bool) -> float:
    """Compute the relative squared error of Theta_0 for equal models, without noise."""
    rank, total, squares = len(s), sum(s), sum(x * x for x in s)
    if faded:
        cross = (1.0 + 1.0 / devices) * (total**2 - squares)
        return (cross + (2.0 - 2.0 / devices + rank / devices) * squares) / (rank * squares)
    return (total**2 + (1.0 - 2.0 / devices) * squares) / (rank * squares)


def _compute_general(point: LowRank, devices: int, faded: bool, weight: Tensor) -> float:
    """Compute the installed `compute_distortion` over |T|^2 for models [1 or K]."""
    own = LowRank(*(block.expand(devices, *block.shape[1:])[None] for block in point))
    products, w = random_linear_coding.compute_inner_products(own), weight[None]
    square = torch.einsum("sk,skj,sj->s", w, products, w)
    squares = products.diagonal(dim1=1, dim2=2)
    fourth = 2.0 if faded else 1.0
    law = random_linear_coding.compute_distortion(
        own.s.sum(2), squares, square, w, own.s.shape[2], fourth
    )
    return float(law / square)


DISTORTIONS = (
    (EQUAL, 10, False, 1.2),
    (MIXED, 10, False, 0.79711),
    (ONE, 10, False, 0.45),
    ((1.0,), 10, False, 1.8),
    (EQUAL, 1, False, 0.75),
    (EQUAL, 10, True, 1.375),
    (MIXED, 10, True, 0.93182),
)
"""Singular values, devices, whether GBMA's fading counts, and the law in figures."""


@state_law("algorithm fedrlr: distortion of equal models", f"{FEDRLR}; does not vanish with K")
def _equal_models(bench: Bench) -> Iterator[Check]:
    """Compare the error of the recovered product, and the installed law, with the closed form."""
    figures, installed, laws = [], [], []
    for s, devices, faded, figure in DISTORTIONS:
        case = f"s={s[0]:g}..{s[-1]:g}, K={devices}, {'GBMA' if faded else 'unit gains'}"
        law, point = _compute_distortion(s, devices, faded), draw_points(bench, s, 12, 9, 1)
        weight = torch.full((devices,), 1.0 / devices, dtype=F64, device=bench.torch_device)
        figures.append(figure)
        installed.append(_compute_general(point, devices, faded, weight))
        laws.append(law)
        streams = make_streams(bench, bench.scale_size(4000))
        gain = draw_gains(streams, devices, faded)
        error = send_models(streams, point, devices).combine(streams, {"u0": gain, "v0": gain})
        square = (error - to_dense(point)).square().sum((1, 2)) / to_dense(point).square().sum()
        yield check_mean(law, square.cpu().numpy(), case)
    yield check_ratios(np.array(laws), np.array(figures), 1e-5, "in figures")
    yield check_ratios(np.array(installed), np.array(laws), 1e-9, "installed")


@state_law("algorithm fedrlr: distortion of unequal models", f"{FEDRLR}; random linear coding")
def _unequal_models(bench: Bench) -> Iterator[Check]:
    """Compare models of different weights, unrelated or with a large common part."""
    devices, rank = 4, 3
    random = torch.Generator().manual_seed(2)
    left, right = (torch.randn(5, 6, 3, generator=random, dtype=F64) for _ in range(2))
    scale = torch.tensor([1.0, 0.5, 2.0, 1.5], dtype=F64)[:, None]
    weight = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=F64).to(bench.torch_device)
    for common, faded in itertools.product((3.0, 0.0), (False, True)):
        whole = left[:4] @ right[:4].mT + common * left[4:] @ right[4:].mT
        u, s, vt = torch.linalg.svd(whole, full_matrices=False)
        factors = (u[:, :, :rank], s[:, :rank] * scale, vt[:, :rank].mT)
        point = LowRank(*(factor.to(bench.torch_device) for factor in factors))
        streams = make_streams(bench, bench.scale_size(20_000))
        gain = draw_gains(streams, devices, faded)
        sent = send_models(streams, point, devices, weight)
        target = (weight[:, None, None] * to_dense(point)).sum(0)
        off = sent.combine(streams, {"u0": gain, "v0": gain}) - target
        square = off.square().sum((1, 2)) / target.square().sum()
        case = f"common part {common:g}, {'GBMA' if faded else 'unit gains'}"
        yield check_mean(
            _compute_general(point, devices, faded, weight), square.cpu().numpy(), case
        )


def compute_noise(nuclear: float, rank: int, m: int, n: int, noise: float) -> float:
    """Compute the squared error by noise of variance v in each entry of both sums."""
    return noise * nuclear * (m + n) + m * n * rank * noise**2


@state_law(
    "algorithm fedrlr: noise of the product", "v (sum s)(M + N) + M N R v^2", "{}", MEANS[:2]
)
def _product_noise(bench: Bench, case: str) -> Iterator[Check]:
    """Compare what noise adds to the recovered product of one 40 x 24 layer of ten devices."""
    devices, m, n, v = 10, 40, 24, 0.005
    streams = make_streams(bench, bench.scale_size(2000))
    gain = draw_gains(streams, devices, case == "GBMA")
    sent = send_models(streams, draw_points(bench, MIXED, m, n, 1), devices)
    gains = {"u0": gain, "v0": gain}
    gap = sent.combine(streams, gains, v) - sent.combine(streams, gains)
    law = compute_noise(sum(MIXED), len(MIXED), m, n, v)
    yield check_mean(1.0, gap.square().sum((1, 2)).cpu().numpy() / law)
