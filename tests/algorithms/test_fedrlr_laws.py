"""Laws of FedRLR's random linear coding and of what the server makes of it.

Every statistic is a mean over many independent trials of a fixed seed, and must lie within 4.5
standard errors of its law: false-alarm level 7e-6 a number compared.

Mutations that must fail: 1/R or 1 for 1/sqrt(R); one F for all devices, for all layers or for all
rounds; another F for V than for U; a Gaussian F; F redrawn from signs that are not fair; sqrt(s) or
sqrt(w) left out of one factor; division by K in place of what arrived; in `rlc.distortion`, the
variance of the gains' squares, a device's own or the pairs' part, the pairs' <Theta_k, Theta_j> or
the weights left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

import pytest
import torch
from support.marks import first_is_fast
from torch import Tensor
from twins.rlc import equal_models_distortion, noise_distortion
from twins.setting import Quiet, everyone, mlp

from otafl.algorithms.fedrlr import FedRLR
from otafl.core.contracts import Cohort, Context, LocalContext, Received, Tensors
from otafl.core.rng import Streams
from otafl.factorised import rlc
from otafl.factorised.lowrank import LowRank, dense
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.law

F64 = torch.float64
Z = 4.5


def assert_mean(samples: Tensor, law: Tensor | float) -> None:
    """The mean over the first dimension is the law's, by its own standard error."""
    error = samples.std(0) / len(samples) ** 0.5
    off = (samples.mean(0) - law).abs()
    assert (off <= Z * error + 1e-13).all(), (samples.mean(0), law, error)


def points(s: list[float], m: int, n: int, models: int, seed: int = 0) -> LowRank:
    """Random bases, given singular values; `models` of them."""
    generator = torch.Generator().manual_seed(seed)
    u, v = (
        torch.linalg.qr(torch.randn(models, side, len(s), generator=generator, dtype=F64))[0]
        for side in (m, n)
    )
    return LowRank(u, torch.tensor(s, dtype=F64).expand(models, -1), v)


@dataclass
class Sent:
    """One round of one layer. coded u [S, K, M, R] and v [S, K, N, R]; points as they are then."""

    algorithm: FedRLR
    cohort: Cohort
    coded: Tensors
    own: LowRank

    def server(self, left: Tensor, right: Tensor, noise: float = 0.0) -> Tensor:
        """Theta_0 [S, M, N] for effective gains [S, K] of both factors; noise: v of the paper's
        X^, where a device carries 1 in place of 1 / sqrt(K) here. A gain of 0 is silence."""
        trials, devices = left.shape
        streams = Streams([77] * trials, list(range(trials)), dtype=F64)
        mean: Tensors = {}
        for name, gain in (("u0", left), ("v0", right)):
            value = torch.einsum("sk,skmr->smr", gain, self.coded[name])
            z = streams.normal(name, 0, tuple(value.shape[1:]))
            mean[name] = (value + z * sqrt(noise / devices)).mT
        bias = {"b0": left.new_zeros(trials, self.own.v.shape[1])}
        count = (self.cohort.weight.view(trials, devices) * (left != 0)).sum(1)
        received = Received((mean, bias), (count, count), None, None)
        state = self.algorithm.combine(bias, received, Context(self.cohort, {}, streams, 0))
        return dense(LowRank(state["u0"], state["s0"], state["v0"]))


def send(
    point: LowRank, trials: int, devices: int, seed: int = 9, weight: Tensor | None = None
) -> Sent:
    """K devices in each of S trials encode; point [1 or K, ...], the same in every trial; weight
    [K], equal if not given."""
    m, n, r = point.u.shape[1], point.v.shape[1], point.s.shape[1]
    model = SoftmaxRegression(SoftmaxRegression.Settings(), (m,), n)
    algorithm = FedRLR(FedRLR.Settings(rank=r), model, devices)
    shares = torch.full((devices,), 1 / devices, dtype=F64) if weight is None else weight
    cohort = everyone(shares.expand(trials, devices))
    own = {
        f"{name}0": block.expand(trials, devices, *block.shape[1:]).flatten(0, 1)
        for name, block in zip("usv", point, strict=True)
    }
    own["b0"] = torch.zeros(trials * devices, n, dtype=F64)
    streams = Streams([seed] * trials, list(range(trials)), dtype=F64)
    none = torch.zeros(trials, dtype=F64)
    hyper = {"q": none + 1.0, "nu": none + 1.0, "c1": none, "mu": none}
    server = {name: block[::devices] for name, block in own.items()}
    rows = algorithm.broadcast(server, cohort).rows(cohort, 0, cohort.size)
    context = LocalContext(cohort, hyper, streams, 0, Quiet(cohort, m))
    state, payload, _ = algorithm.local(rows, own, context)
    coded = {name: b.mT.unflatten(0, (trials, devices)) for name, b in payload[0].blocks.items()}
    return Sent(algorithm, cohort, coded, LowRank(state["u0"], state["s0"], state["v0"]))


def coders(rounds: range, trials: int, devices: int, rank: int) -> Tensor:
    """F of every (round, layer, trial, device), [rounds, 2, S, K, R, R], read from U F at U = V =
    Sigma = I; the one of V must be the same."""
    model = mlp((rank, rank, rank))
    algorithm = FedRLR(FedRLR.Settings(rank=rank), model, devices)
    cohort = everyone(torch.full((trials, devices), 1 / devices, dtype=F64))
    eye = torch.eye(rank, dtype=F64).expand(cohort.size, rank, rank)
    own: Tensors = {}
    for i in range(2):
        own |= {f"u{i}": eye, f"s{i}": torch.ones(cohort.size, rank, dtype=F64), f"v{i}": eye}
        own[f"b{i}"] = torch.zeros(cohort.size, rank, dtype=F64)
    streams = Streams([5] * trials, list(range(trials)), dtype=F64)
    hyper = {name: torch.ones(trials, dtype=F64) for name in ("q", "nu", "mu")}
    hyper["c1"] = torch.zeros(trials, dtype=F64)
    server = {name: block[:trials] for name, block in own.items()}
    out = []
    for t in rounds:
        rows = algorithm.broadcast(server, cohort).rows(cohort, 0, cohort.size)
        context = LocalContext(cohort, hyper, streams, t, Quiet(cohort, rank, t))
        state, (factors, _), _ = algorithm.local(rows, dict(own), context)
        layers = []
        for i in range(2):
            f_u, f_v = (
                state[f"{side}{i}"].mT @ factors.blocks[f"{side}{i}"].mT * devices**0.5
                for side in "uv"
            )
            torch.testing.assert_close(f_u, f_v, rtol=0, atol=1e-13)
            layers.append(f_u.view(trials, devices, rank, rank))
        out.append(torch.stack(layers))
    return torch.stack(out)


@pytest.mark.parametrize("rank", [2, 4])
def test_moments_of_the_coder(rank: int) -> None:
    """Fact 8: entries +-1/sqrt(R); F F^T has a unit diagonal exactly, off it mean 0 and variance
    1/R; F_k F_j^T has mean 0 for two devices, layers or rounds. 6,000 pairs or more each."""
    f = coders(range(3), 1000, 2, rank)
    torch.testing.assert_close(f.abs(), torch.full_like(f, rank**-0.5), rtol=0, atol=1e-13)
    assert_mean(f.flatten(0, 3), 0.0)
    gram = (f @ f.mT).flatten(0, 3)
    diagonal = gram.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(diagonal, torch.ones_like(diagonal), rtol=0, atol=1e-12)
    row, column = torch.triu_indices(rank, rank, 1)
    assert_mean(gram[:, row, column], 0.0)
    assert_mean(gram[:, row, column].square(), 1 / rank)
    assert_mean((f[:, :, :, 0] @ f[:, :, :, 1].mT).flatten(0, 2), 0.0)
    assert_mean((f[:, 0] @ f[:, 1].mT).flatten(0, 2), 0.0)
    assert_mean((f[0] @ f[1].mT).flatten(0, 2), 0.0)
    assert_mean((f[:, :, 0::2] @ f[:, :, 1::2].mT).flatten(0, 3), 0.0)


def test_energy_of_the_signals() -> None:
    """Fact 9: ||S_U||^2 = ||S_V||^2 = sum s (times w_k) for every F, and E||X_U||^2 = K sum s for
    equal models, at unit weights. 4,000 trials."""
    s = [5.0, 2.0, 1.0, 0.5]
    sent = send(points(s, 12, 9, 1), 4000, 10)
    for block in sent.coded.values():
        energy = block.square().sum((2, 3)) * 10
        torch.testing.assert_close(energy, torch.full_like(energy, sum(s)), rtol=1e-12, atol=0)
        assert_mean((block * sqrt(10)).sum(1).square().sum((1, 2)), 10 * sum(s))


def rayleigh(trials: int, devices: int, purpose: str) -> Tensor:
    """|h|, [S, K]."""
    streams = Streams([31] * trials, list(range(trials)), dtype=F64)
    return streams.normal(purpose, 0, (devices, 2)).square().sum(-1).div(2).sqrt()


@pytest.mark.parametrize("case", ["ideal", "gbma", "tci", "per_factor"])
def test_the_server_gets_the_mean_on_average(case: str) -> None:
    """Fact 10, different models on 5 devices, noise v = 0.02, 20,000 trials: E[Theta_0] is the mean
    of Theta_k with unit gains, with GBMA, and with truncated inversion over what arrived; it is
    pi/4 of it if the two factors fade independently."""
    trials, devices = 20_000, 5
    point = points([2.0, 0.7], 4, 3, devices)
    mean = dense(point).mean(0)
    sent = send(point, trials, devices)
    if case == "ideal":
        left = right = torch.ones(trials, devices, dtype=F64)
    elif case == "gbma":
        left = right = rayleigh(trials, devices, "h")
    elif case == "tci":
        left = right = (rayleigh(trials, devices, "h").square() >= 0.7).to(F64)
    else:
        left, right = rayleigh(trials, devices, "u"), rayleigh(trials, devices, "v")
    heard = (left != 0).any(1)
    got = sent.server(left, right, 0.02)[heard]
    assert (heard.all()) == (case != "tci")
    assert_mean(got, pi / 4 * mean if case == "per_factor" else mean)
    # The test can tell the two apart: the projection on the mean is known to a few percent.
    along = (got * mean).sum((1, 2)) / mean.square().sum()
    assert Z * along.std() / len(got) ** 0.5 < 0.1


EQUAL, MIXED, ONE = [1.0] * 4, [5.0, 2.0, 1.0, 0.5], [1.0, 1e-9, 1e-9, 1e-9]


def has_closed_form(s: list[float], devices: int, faded: bool) -> float:
    """Relative squared error of Theta_0 for equal models, without noise."""
    rank, total, squares = len(s), sum(s), sum(x * x for x in s)
    if faded:
        cross = (1 + 1 / devices) * (total**2 - squares)
        return (cross + (2 - 2 / devices + rank / devices) * squares) / (rank * squares)
    return (total**2 + (1 - 2 / devices) * squares) / (rank * squares)


@pytest.mark.parametrize(
    ("s", "devices", "faded", "expected"),
    [
        (EQUAL, 10, False, 1.2),
        (MIXED, 10, False, 0.79711),
        (ONE, 10, False, 0.45),
        ([1.0], 1, False, 0.0),
        ([1.0], 10, False, 1.8),
        (EQUAL, 1, False, 0.75),
        (EQUAL, 10, True, 1.375),
        (MIXED, 10, True, 0.93182),
    ],
)
def test_distortion_of_equal_models(
    s: list[float], devices: int, faded: bool, expected: float
) -> None:
    """Facts 11 and 12: it does not vanish with K, nor with consensus. 4,000 trials."""
    trials = 4000
    point = points(s, 12, 9, 1)
    gain = rayleigh(trials, devices, "h") if faded else torch.ones(trials, devices, dtype=F64)
    error = send(point, trials, devices).server(gain, gain) - dense(point)
    ratio = error.square().sum((1, 2)) / dense(point).square().sum()
    law = equal_models_distortion(s, devices, 2.0 if faded else 1.0)
    assert law == pytest.approx(expected, abs=5e-6)
    assert law == pytest.approx(has_closed_form(s, devices, faded), abs=1e-12)
    assert law == pytest.approx(float(general_law(point, devices, faded)), abs=1e-12)
    assert_mean(ratio, law)


def general_law(point: LowRank, devices: int, faded: bool, weight: Tensor | None = None) -> Tensor:
    """`rlc.distortion` over |T|^2 for models [1 or K]."""
    own = LowRank(*(block.expand(devices, *block.shape[1:])[None] for block in point))
    w = torch.full((1, devices), 1 / devices, dtype=F64) if weight is None else weight[None]
    products = rlc.inner_products(own)
    mean = torch.einsum("sk,skj,sj->s", w, products, w)
    squares = products.diagonal(dim1=1, dim2=2)
    law = rlc.distortion(own.s.sum(2), squares, mean, w, own.s.shape[2], 2.0 if faded else 1.0)
    return (law / mean)[0]


@pytest.mark.parametrize("faded", [False, True])
@pytest.mark.parametrize("common", first_is_fast([3.0, 0.0]))
def test_distortion_of_unequal_models(faded: bool, common: float) -> None:
    """Different models and weights, 4 devices of rank 3, unrelated or with a large common part.
    20,000 trials, which tell each term of the law apart: the smallest is 5 of its errors."""
    devices, trials, rank = 4, 20_000, 3
    generator = torch.Generator().manual_seed(2)
    left, right = (torch.randn(5, 6, 3, generator=generator, dtype=F64) for _ in range(2))
    whole = left[:4] @ right[:4].mT + common * left[4:] @ right[4:].mT
    u, s, vt = torch.linalg.svd(whole, full_matrices=False)
    scale = torch.tensor([1.0, 0.5, 2.0, 1.5], dtype=F64)[:, None]
    point = LowRank(u[:, :, :rank], s[:, :rank] * scale, vt[:, :rank].mT)
    weight = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=F64)
    gain = rayleigh(trials, devices, "h") if faded else torch.ones(trials, devices, dtype=F64)
    sent = send(point, trials, devices, weight=weight)
    mean = (weight[:, None, None] * dense(point)).sum(0)
    ratio = (sent.server(gain, gain) - mean).square().sum((1, 2)) / mean.square().sum()
    law = general_law(point, devices, faded, weight)
    assert_mean(ratio, law)
    products = rlc.inner_products(LowRank(*(block[None] for block in point)))[0]
    products = products / mean.square().sum()
    crossed = weight @ products @ weight - (weight.square() * products.diagonal()).sum()
    own = (weight.square() * products.diagonal()).sum()
    least = min(abs(float(crossed)) / rank, float(own)) if common else float(own)
    assert least > 5 * float(ratio.std()) / trials**0.5


@pytest.mark.parametrize("faded", [False, True])
def test_noise_part_of_the_distortion(faded: bool) -> None:
    """Fact 13: [v K (sum s)(M + N) + M N R v^2] / (K^2 sum s^2) = 0.09309, as E||Theta_0 with noise
    - Theta_0 without||^2, which noise of mean zero makes the same. 2,000 trials."""
    s, devices, m, n, v, trials = MIXED, 10, 40, 24, 0.05, 2000
    squares = sum(x * x for x in s)
    law = (v * devices * sum(s) * (m + n) + m * n * len(s) * v**2) / (devices**2 * squares)
    assert law == pytest.approx(0.09309, abs=5e-6)
    ours = noise_distortion(sum(s), len(s), m, n, v / devices) / squares
    assert ours == pytest.approx(law, rel=1e-12)
    gain = rayleigh(trials, devices, "h") if faded else torch.ones(trials, devices, dtype=F64)
    sent = send(points(s, m, n, 1), trials, devices)
    gap = sent.server(gain, gain, v) - sent.server(gain, gain)
    assert_mean(gap.square().sum((1, 2)) / squares, law)
