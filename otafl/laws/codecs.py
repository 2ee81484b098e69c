"""Check the laws of the codecs, over the uplink where it plays a part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from otafl.codecs.amp import amp_step
from otafl.codecs.sensing import Sensing
from otafl.core.contracts import Blocks, Context, Group
from otafl.core.units import db_to_linear
from otafl.laws.bench import CONFORMANCE, Bench, Rig
from otafl.laws.checks import Check, at_most, exactly, mean, ratios, share, stated
from otafl.laws.mutations import constant, made, mutations_of, replaced, scaled

REALS = 128
AMP = CONFORMANCE / "amp"


ALISTARH = "Alistarh et al. 2017"


def _rig(bench: Bench, codec: dict[str, Any], trials: int = 64, devices: int = 4) -> Rig:
    return bench.uplink(devices, trials, {"codec": codec, "transport": "ideal"})


def _coded(rig: Rig, x: Tensor, round: int, memory: Blocks | None = None) -> tuple[Tensor, Blocks]:
    """Return what goes on air of rows [n, P], and the memory."""
    codec, group = rig.link.codec, Group({"x": x})
    own = codec.init((group,)) if memory is None else memory
    (coded,), own = codec.encode((group,), own, rig.cohort, round, rig.streams)
    return next(iter(coded.blocks.values())), own


QSGD: list[dict[str, Any]] = [
    {"name": "qsgd", "bits": b, "norm": n} for n in ("l2", "max") for b in (2, 4, 8)
]
CASE = "bits={0[bits]}, norm={0[norm]}"


def _qsgd_levels(codec: dict[str, Any], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return |x| in units of norm / s [n, P], and that unit [n, 1]."""
    order = 2 if codec["norm"] == "l2" else torch.inf
    unit = torch.linalg.vector_norm(x, order, dim=1, keepdim=True) / (2 ** (codec["bits"] - 1) - 1)
    return x.abs() / unit, unit


def _each_round(bench: Bench, codec: dict[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield x and Q(x) [n, P] round after round."""
    rig = _rig(bench, codec)
    for round in range(bench.size(16)):
        x = rig.symbols(REALS, round)
        yield x, _coded(rig, x, round)[0]


@stated("codec qsgd: unbiased", f"{ALISTARH}, Lemma 3.1", CASE, QSGD)
def _qsgd_mean(bench: Bench, codec: dict[str, Any]) -> Iterator[Check]:
    """Take the part of Q(x) along x, over |x|^2."""
    parts = [(q * x).sum(1) / x.square().sum(1) for x, q in _each_round(bench, codec)]
    yield mean(1.0, torch.stack(parts).cpu().numpy())


@stated("codec qsgd: variance", f"{ALISTARH}; f (1 - f) of a level", CASE, QSGD)
def _qsgd_variance(bench: Bench, codec: dict[str, Any]) -> Iterator[Check]:
    """Compare squared errors with (norm / s)^2 f (1 - f) a real, f the fractional part of its
    level."""
    parts = []
    for x, q in _each_round(bench, codec):
        level, unit = _qsgd_levels(codec, x)
        law = unit.square() * (level.frac() * (1.0 - level.frac()))
        parts.append((q - x).square().sum(1) / law.sum(1))
    yield mean(1.0, torch.stack(parts).cpu().numpy())


@stated("codec qsgd: variance bound", f"{ALISTARH}, Lemma 3.1", CASE, QSGD[:3])
def _qsgd_bound(bench: Bench, codec: dict[str, Any]) -> Iterator[Check]:
    """Bound E|Q(x) - x|^2 by min(n / s^2, sqrt(n) / s) |x|^2."""
    x, q = next(_each_round(bench, codec))
    levels = 2 ** (codec["bits"] - 1) - 1
    bound = min(REALS / levels**2, math.sqrt(REALS) / levels)
    off = (q - x).square().sum(1) / x.square().sum(1)
    yield at_most(1.0, float(off.mean()) / bound)


@stated("codec qsgd: independent over reals", "n levels of f (1 - f)")
def _qsgd_apart(bench: Bench) -> Iterator[Check]:
    """Compare the squared error of the sum of n equal reals with n times that of one."""
    n, level = 50, math.sqrt(1.0 / 50)  # one level: |x_i| / |x|
    rig = _rig(bench, {"name": "qsgd", "bits": 2})
    ones = torch.ones(rig.cohort.size, n).to(rig.cohort.weight)
    off = [(_coded(rig, ones, round)[0] - ones).sum(1) for round in range(bench.size(64))]
    law = n * n * level * (1.0 - level)
    yield mean(1.0, torch.stack(off).square().cpu().numpy() / law)


@stated("codec uniform: quantisation noise", "step^2 / 12", "{} bits", (6, 10))
def _uniform(bench: Bench, bits: int) -> Iterator[Check]:
    """Compare the error of normal symbols with step^2 / 12, step (max - min) / (2^b - 1); the two
    ends are exact."""
    rig = _rig(bench, {"name": "uniform", "bits": bits}, bench.size(64))
    x = rig.symbols(2048, 0)
    step = (x.amax(1) - x.amin(1)) / (2**bits - 1)
    off = (_coded(rig, x, 0)[0] - x).square().sum(1) / 2046
    yield mean(1.0, (off / (step.square() / 12.0)).cpu().numpy(), bias=1e-3)


@stated("codec topk: error feedback loses nothing", "Stich et al. 2018, Algorithm 1")
def _feedback(bench: Bench) -> Iterator[Check]:
    """Add what is received to what is remembered: it is what came, over 5 rounds, in which about
    half of the updates are lost."""
    rig = _rig(bench, {"name": "topk", "keep": 0.1}, 4)
    memory: Blocks | None = None
    total = sent = torch.zeros_like(rig.symbols(REALS, 0))
    for round in range(5):
        x = rig.symbols(REALS, round)
        coded, memory = _coded(rig, x, round, memory)
        heard = x[:, :1] > 0
        context = Context(rig.cohort, rig.link.codec.hyper, rig.streams, round)
        memory = rig.link.codec.settle(memory, (Group({"x": coded}),), (heard,), context)
        total, sent = total + x, sent + coded * heard
    assert memory is not None
    yield exactly(0.0, float((total - sent - memory["rest/0"]).abs().max()), 1e-9)


@stated("codec topk: the largest magnitudes", "Stich, Cordonnier, Jaggi 2018")
def _topk(bench: Bench) -> Iterator[Check]:
    """Compare the energy with that of the largest tenth."""
    rig = _rig(bench, {"name": "topk", "keep": 0.1, "error_feedback": False}, 4)
    x = rig.symbols(REALS, 0)
    largest = x.abs().topk(13, dim=1).values.square().sum(1)
    yield ratios(_coded(rig, x, 0)[0].square().sum(1).cpu().numpy(), largest.cpu().numpy())


BITS: dict[str, tuple[dict[str, Any], float]] = {
    "identity": ({}, 32.0 * REALS),
    "uniform": ({"bits": 6}, 6.0 * REALS + 64),
    "qsgd": ({"bits": 4}, 4.0 * REALS + 32),
    "topk": ({"keep": 0.1}, 13 * 32 + min(13 * 7, REALS)),
    "obda": ({}, 1.0 * REALS),
}
"""Codec -> its settings, and the bits of 128 reals in one block."""


@stated("codec: bits on a digital uplink", "bits a real and side information", "{}", BITS)
def _bits(bench: Bench, name: str) -> Iterator[Check]:
    settings, law = BITS[name]
    rig = bench.uplink(2, 2, {"codec": {"name": name} | settings, "transport": "digital"})
    report = rig.send(rig.symbols(REALS, 0), 0)[1]
    yield exactly(2 * law, float(report.bits.mean()))


@stated("codec obda: error of the majority vote", "Zhu et al. 2021; Q(|v| sqrt(eta / N))")
def _votes(bench: Bench) -> Iterator[Check]:
    """Count wrong votes of five devices' signs over channel inversion, P at -8 dB: Q(|v| sqrt(P /
    N)) by the size of the vote; on both quadratures each has half the power."""
    for quadrature in (False, True):
        point = {
            "channel": {"name": "awgn", "snr_db": -8.0},
            "power": "ci",
            "codec": "obda",
            "transport": {"name": "over_the_air", "quadrature": quadrature},
        }
        rig = bench.uplink(5, 16, point)
        votes, wrong = [], []
        for round in range(bench.size(16)):
            x = rig.symbols(1024, round)
            vote = torch.where(x >= 0, 1.0, -1.0).view(rig.trials, 5, -1).sum(1)
            decided = rig.send(x, round)[0]
            votes.append(vote.abs().cpu().numpy())
            wrong.append((decided.sign() != vote.sign()).cpu().numpy())
        size, missed = np.stack(votes), np.stack(wrong)
        power = db_to_linear(-8.0) / (2.0 if quadrature else 1.0)
        for v in (1, 3, 5):
            law = float(stats.norm.sf(v * math.sqrt(2.0 * power)))
            here = size == v
            case = f"|v|={v}, {'two quadratures' if quadrature else 'one real'}"
            yield share(law, int(missed[here].sum()), int(here.sum()), case)


@stated("codec compressed_sensing: state evolution", "Donoho, Maleki, Montanari 2009")
def _amp(bench: Bench) -> Iterator[Check]:
    """Compare tau^2 of five steps with its law, over problems of 1,000 reals, a hundred of them
    normal, and 500 measurements with noise, each with its own matrix. It is exact for large
    problems, and 2 % is left for their size."""
    n, m, some, sigma, a = 1000, 500, 100, 0.05, 1.5
    rig = bench.uplink(1, bench.size(96), {})
    matrix = rig.streams.normal(AMP, 0, (m, n)) / math.sqrt(m)
    values = rig.symbols(some, 0, 1.0)  # which columns they meet does not matter
    x = torch.nn.functional.pad(values, (0, n - some))[:, None]
    noise = rig.streams.normal(AMP / "noise", 0, (m,))[:, None] * sigma
    y = x @ matrix.mT + noise
    guess, residual = torch.zeros_like(x), y
    law = sigma**2 + some / m
    for step in range(6):
        tau = residual.square().mean((1, 2)).cpu().numpy()
        yield mean(law, tau, f"step {step}", bias=0.02 * law)
        law = sigma**2 + n / m * _soft_error(law, some / n, a)
        guess, residual = amp_step(y, guess, residual, matrix, a)


RATIOS = (0.027, 0.1, 0.5)
"""Measurements a real."""


@stated("codec compressed_sensing: default threshold", "Donoho, Maleki, Montanari 2011")
def _threshold(bench: Bench) -> Iterator[Check]:
    """Bound the error at the default threshold by 1 dB above the least error over thresholds, both
    by state evolution of 30 steps from 0, for one normal real in ten measurements and a noise 20 dB
    below what is measured."""
    rig = _rig(bench, {"name": "compressed_sensing"}, 1)
    sensing = Sensing(rig.link.codec.settings, rig.streams)
    for ratio in RATIOS:
        default = sensing.threshold(round(1000 * ratio), 1000)
        least = min(_evolved(ratio, float(a)) for a in np.linspace(0.8, 3.2, 13))
        yield at_most(db_to_linear(1.0) * least, _evolved(ratio, default), case=f"m/n={ratio:g}")


def _evolved(ratio: float, a: float) -> float:
    """Return the least mean squared error of 30 steps, over the power of what is sent."""
    sparsity = 0.1 * ratio
    tau2, errors = sparsity / ratio * 1.01, [sparsity]
    for _ in range(30):
        errors.append(_soft_error(tau2, sparsity, a))
        tau2 = (0.01 * sparsity + errors[-1]) / ratio
        if errors[-1] > 10.0 * sparsity:  # it has diverged
            break
    return min(errors) / sparsity


def _soft_error(tau2: float, sparsity: float, a: float) -> float:
    """Return E[(soft(X + tau Z, a tau) - X)^2]: for X = 0 in closed form, for a normal X given r =
    X + tau Z normal, with X given r normal about r / (1 + tau^2)."""
    tau = math.sqrt(tau2)
    zero = 2.0 * tau2 * ((1.0 + a * a) * stats.norm.sf(a) - a * stats.norm.pdf(a))
    r = np.linspace(-12.0, 12.0, 4_001) * math.sqrt(1.0 + tau2)
    weight = stats.norm.pdf(r, scale=math.sqrt(1.0 + tau2)) * (r[1] - r[0])
    soft = np.sign(r) * np.maximum(np.abs(r) - a * tau, 0.0)
    about = r / (1.0 + tau2)
    some = (weight * ((soft - about) ** 2 + tau2 / (1.0 + tau2))).sum()
    return float((1.0 - sparsity) * zero + sparsity * some)


# Mutations


def _no_onsager(real: Any) -> Any:
    def step(y: Any, x: Any, z: Any, matrix: Any, a: float) -> Any:
        tau = z.square().mean(-1, keepdim=True).sqrt()
        r = x + z @ matrix
        x = r - r.clamp(-a * tau, a * tau)
        return x, y - x @ matrix.mT

    return step


def _rounded_down(real: Any) -> Any:
    return lambda self, block, draw: real(self, block, 0.0 * draw)


def _one_draw(real: Any) -> Any:
    """One draw for all reals of a device."""
    return lambda self, block, draw: real(self, block, draw[:, :1].expand_as(draw))


def _two_levels(codec: Any) -> None:
    """Magnitudes of none or all of the norm."""
    codec._levels = 1


def _half_the_levels(codec: Any) -> None:
    codec._levels = codec._levels // 2


def _everyone_heard(real: Any) -> Any:
    return lambda sent, heard, *rest: real(sent, torch.ones_like(heard), *rest)


def _smallest(real: Any) -> Any:
    return lambda x, count: x - real(x, x.shape[1] - count)


MUTATIONS = (
    mutations_of(
        "codec qsgd: ",
        {
            "rounding down": (
                {"independent over reals", "unbiased", "variance"},
                replaced("otafl.codecs.qsgd:Qsgd._quantised", _rounded_down),
            ),
            "one draw for all reals": (
                "independent over reals",
                replaced("otafl.codecs.qsgd:Qsgd._quantised", _one_draw),
            ),
            "levels of one bit": (
                {"variance", "variance bound"},
                made("otafl.codecs.qsgd:Qsgd", _two_levels),
            ),
        },
    )
    + mutations_of(
        "codec uniform: ",
        {
            "half the levels": (
                "quantisation noise",
                made("otafl.codecs.uniform:Uniform", _half_the_levels),
            ),
        },
    )
    + mutations_of(
        "codec topk: ",
        {
            "lost updates forgotten": (
                "error feedback loses nothing",
                replaced("otafl.codecs.topk:forgotten", _everyone_heard),
            ),
            "the smallest magnitudes": (
                "the largest magnitudes",
                replaced("otafl.codecs.topk:top", _smallest),
            ),
        },
    )
    + mutations_of(
        "codec: ",
        {
            "norms that take no bits": (
                "bits on a digital uplink",
                constant(
                    "otafl.codecs.qsgd:Qsgd.bits",
                    lambda self, group: float(self.settings.bits * group.reals),
                ),
            ),
        },
    )
    + mutations_of(
        "codec obda: ",
        {
            "the opposite vote": (
                "error of the majority vote",
                scaled("otafl.codecs.obda:Obda._vote", -1.0),
            ),
        },
    )
    + mutations_of(
        "codec compressed_sensing: ",
        {
            "no Onsager term": (
                "state evolution",
                replaced("otafl.laws.codecs:amp_step", _no_onsager),
            ),
            "one threshold for all ratios": (
                "default threshold",
                constant("otafl.codecs.sensing:default_threshold", lambda *of: 1.5),
            ),
        },
    )
)
