"""Laws of FedRLR's random linear coding, with given gains and noise.

Squared errors are those of the Frobenius norm, over that of the mean of the devices' models. Closed
forms of equal models are written down here apart from the code.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

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
from otafl.laws.mutations import build_mutations, change_result, replace_by

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


# Mutations


def _reuse_first_coder(real: Any) -> Any:
    """Use the coder of the first row for all devices and trials."""

    def draw(self: Any, purpose: str, *args: Any) -> Any:
        uniform = real(self, purpose, *args)
        return uniform[:1].expand_as(uniform) if purpose == "rlc" else uniform

    return draw


def _draw_unfair(real: Any) -> Any:
    """Draw signs of which 62 % are positive."""

    def draw(self: Any, purpose: str, *args: Any) -> Any:
        uniform = real(self, purpose, *args)
        return 0.8 * uniform if purpose == "rlc" else uniform

    return draw


def _use_other_coder(real: Any) -> Any:
    """Code V with the coder of the next row, and 10 % louder."""

    def encode(*args: Any) -> Any:
        coded, *rest = real(*args)
        blocks = dict(coded.tensors)
        blocks["v0"] = 1.1 * blocks["v0"].roll(1, 0)
        return (dataclasses.replace(coded, tensors=blocks), *rest)

    return encode


def _first_layers_coder(real: Any) -> Any:
    """Code each layer by itself, and hence from the beginning of the stream."""

    def encode(self: Any, points: Any, bias: Any, context: Any) -> Any:
        coded, rest = real(self, points, bias, context)
        blocks: dict[str, Tensor] = {}
        for i, point in enumerate(points):
            alone = copy.copy(self)
            alone.ranks = self.ranks[i : i + 1]
            own, _ = real(alone, [point], bias[i : i + 1], context)
            blocks |= {f"{name[0]}{i}": block for name, block in own.tensors.items()}
        return dataclasses.replace(coded, tensors=blocks), rest

    return encode


def _first_rounds_coder(real: Any) -> Any:
    return lambda self, points, bias, context: real(
        self, points, bias, dataclasses.replace(context, round=0)
    )


def _divide_by_all(real: Any) -> Any:
    """Divide by the weight of all devices, also of silent ones."""

    def combine(self: Any, server: Any, received: Any, context: Any) -> Any:
        count = tuple(torch.ones_like(one) for one in received.group_weight)
        return real(self, server, dataclasses.replace(received, group_weight=count), context)

    return combine


def _scale_sums(real: Any) -> Any:
    """Make received sums 10 % too large."""

    def combine(self: Any, server: Any, received: Any, context: Any) -> Any:
        sums = {name: 1.1 * block for name, block in received.mean[0].items()}
        changed = dataclasses.replace(received, mean=(sums, *received.mean[1:]))
        return real(self, server, changed, context)

    return combine


def _leave_out_products(real: Any) -> Any:
    """Leave out the inner products of the models of two devices."""

    def distortion(nuclear: Any, squares: Any, mean_square: Any, weight: Any, *rest: Any) -> Any:
        return real(nuclear, squares, (weight.square() * squares).sum(-1), weight, *rest)

    return distortion


def _leave_out_weights(real: Any) -> Any:
    """Use equal weights of all devices."""

    def distortion(nuclear: Any, squares: Any, mean_square: Any, weight: Any, *rest: Any) -> Any:
        equal = torch.full_like(weight, 1.0 / weight.shape[1])
        return real(nuclear, squares, mean_square, equal, *rest)

    return distortion


MUTATIONS = build_mutations(
    "algorithm fedrlr: ",
    {
        "one coder for all devices": (
            {
                "coders of layers and rounds",
                "coherence blocks of the factors",
                "distortion of equal models",
                "distortion of unequal models",
                "energy of the factors",
                "mean model",
                "moments of the coder",
                "noise of the product",
                "two readings of the SNR",
            },
            replace_by("otafl.core.rng:Streams.draw_device_uniform", _reuse_first_coder),
        ),
        "signs that are not fair": (
            {
                "coders of layers and rounds",
                "distortion of equal models",
                "distortion of unequal models",
                "energy of the factors",
                "mean model",
                "moments of the coder",
                "noise of the product",
            },
            replace_by("otafl.core.rng:Streams.draw_device_uniform", _draw_unfair),
        ),
        "another coder for V": (
            {
                "coherence blocks of the factors",
                "distortion of equal models",
                "distortion of unequal models",
                "energy of the factors",
                "mean model",
                "moments of the coder",
                "two readings of the SNR",
            },
            replace_by("otafl.algorithms.low_rank.fedrlr:FedRLR._encode", _use_other_coder),
        ),
        "one coder for all layers": (
            "coders of layers and rounds",
            replace_by("otafl.algorithms.low_rank.fedrlr:FedRLR._encode", _first_layers_coder),
        ),
        "one coder for all rounds": (
            "coders of layers and rounds",
            replace_by("otafl.algorithms.low_rank.fedrlr:FedRLR._encode", _first_rounds_coder),
        ),
        "devices that were not received count": (
            "mean model",
            replace_by("otafl.algorithms.low_rank.fedrlr:FedRLR.update_server", _divide_by_all),
        ),
        "received sums that are too large": (
            {
                "distortion of equal models",
                "distortion of unequal models",
                "mean model",
                "noise of the product",
            },
            replace_by("otafl.algorithms.low_rank.fedrlr:FedRLR.update_server", _scale_sums),
        ),
        "a law that is too small": (
            {"distortion of equal models", "distortion of unequal models"},
            change_result(
                "otafl.factorised.random_linear_coding:compute_distortion",
                lambda law: 0.8 * law,
            ),
        ),
    },
) + build_mutations(
    "algorithm fedrlr: distortion of unequal ",
    {
        "no products of two models": (
            "models",
            replace_by(
                "otafl.factorised.random_linear_coding:compute_distortion", _leave_out_products
            ),
        ),
        "equal weights": (
            "models",
            replace_by(
                "otafl.factorised.random_linear_coding:compute_distortion", _leave_out_weights
            ),
        ),
    },
    quick=False,
)
