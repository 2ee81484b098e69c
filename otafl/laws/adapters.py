"""Laws of low-rank adapters: errors of the weight from noise, and the error of averaging factors.

Weights have M = 9 inputs and N = 6 outputs, A [r, M] and B [N, r]. Noise has the variance v on each
received coordinate, and the errors are those of the Frobenius norm, without the scale alpha / r.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otafl.algorithms import lora_tangent
from otafl.algorithms.lora import Lora
from otafl.core.contracts import Cohort, Context, Group, Received, Tensors
from otafl.core.rng import Streams
from otafl.laws.bench import CONFORMANCE, Bench
from otafl.laws.checks import Check, check_exact, check_mean, check_mean_square, state_law
from otafl.laws.coded_models import F64, make_cohort, make_streams
from otafl.models.softmax_regression import SoftmaxRegression
from otafl.uplink.base import deliver

INPUTS, OUTPUTS, RANK, DEVICES = 9, 6, 2, 4
TRIALS = 8000
LAYER = "weight0"
N = 0.5


@dataclass(frozen=True)
class Adapted:
    """Method with one adapter on one weight, in S trials of K devices.

    Parameters
    ----------
    method : Lora
        Method at its start.
    cohort : Cohort
        All devices, with equal weights.
    streams : Streams
        Random streams.
    server, devices : dict of str to Tensor
        State of the server [S, *shape] and of the devices [S, K, *shape].
    """

    method: Lora
    cohort: Cohort
    streams: Streams
    server: Tensors
    devices: Tensors

    def draw(self, name: str, *shape: int) -> Tensor:
        """Draw standard normal numbers [S, *shape]."""
        return self.streams.draw_normal(CONFORMANCE / name, 0, shape)

    def compute_weights(self, server: Tensors) -> Tensor:
        """Compute the weights [models, M, N] from the scores of unit vectors."""
        (view,) = self.method.build_views(server, self.devices).values()
        bias = self.method.backbone.params["bias0"][:1]
        eye = torch.eye(INPUTS, dtype=F64, device=bias.device)
        return view.predict_fn(view.params, eye[None]) - bias[:, None]

    def step(self, mean: tuple[Tensors, ...], each: tuple[Tensors, ...] | None = None) -> Tensors:
        """Take the server's step along received means."""
        one = torch.ones(self.streams.num_trials, dtype=F64, device=self.streams.device)
        received = Received(mean, (one,) * len(mean), each, None)
        hyper = {"server_learning_rate": one}
        context = Context(self.cohort, hyper, self.streams, 0)
        return self.method.update_server(self.server, received, context)

    def measure_error(self, variance: float, groups: tuple[tuple[str, ...], ...]) -> Tensor:
        """Measure the squared error [S] of the weight under noise on zero increments."""
        mean = tuple(
            {
                f"{part}.{LAYER}": variance**0.5
                * self.draw(f"noise {part}", *self._get_shape(part))
                for part in group
            }
            for group in groups
        )
        change = self.compute_weights(self.step(mean)) - self.compute_weights(self.server)
        return change.square().sum((1, 2)).view(self.streams.num_trials, -1).mean(1)

    def _get_shape(self, part: str) -> tuple[int, ...]:
        rank = self.method.layers[0].rank
        return {
            "A": (rank, INPUTS),
            "B": (OUTPUTS, rank),
            "R": (rank, rank),
            "a": (INPUTS, rank),
            "b": (OUTPUTS, rank),
            "product": (INPUTS, OUTPUTS),
        }[part]


def _build(bench: Bench, trials: int, rank: int = RANK, **settings: Any) -> Adapted:
    """Build a method at its start, with an adapter on the only weight and no trained head."""
    model = SoftmaxRegression(SoftmaxRegression.Settings(), (INPUTS,), OUTPUTS)
    config = Lora.Settings(rank=rank, head="frozen", **settings)
    method = Lora(config, _replace_start(model), DEVICES)
    streams = make_streams(bench, trials)
    server, devices = method.init(streams, {})
    weight = torch.full((trials, DEVICES), 1.0 / DEVICES, dtype=F64, device=streams.device)
    wide = {n: b.expand(-1, DEVICES, *b.shape[2:]).clone() for n, b in devices.items()}
    return Adapted(method, make_cohort(weight), streams, server, wide)


def _replace_start(model: SoftmaxRegression) -> SoftmaxRegression:
    """Start a model, whose own start is zero, at a random weight that all trials share."""

    def init(draw: Callable[[str, tuple[int, ...]], Tensor]) -> Tensors:
        shape = draw(LAYER, (INPUTS, OUTPUTS)).shape
        random = torch.Generator().manual_seed(0)
        weight = torch.randn(shape[1:], generator=random, dtype=F64).expand(shape)
        like = draw("bias0", (OUTPUTS,))
        return {LAYER: weight.to(like), "bias0": torch.zeros_like(like)}

    model.init = init  # type: ignore[method-assign]
    return model


def _set_factors(adapted: Adapted, names: str = "AB") -> tuple[float, float]:
    """Set random factors, equal in all trials; return |A|^2 and |B|^2."""
    norms = []
    for part in names:
        name = f"{part}.{LAYER}"
        one = adapted.draw(f"start {part}", *adapted._get_shape(part))[:1]
        place = adapted.server if name in adapted.server else adapted.devices
        old = place[name]
        place[name] = (one if place is adapted.server else one[:, None]).expand_as(old).clone()
        norms.append(float(one.square().sum()))
    return norms[0], norms[1]


@state_law(
    "algorithm lora: error of A and B", "v (M |B|^2 + N |A|^2) + v^2 M N r", "v={}", (0.01, 1)
)
def _pair(bench: Bench, v: float) -> Iterator[Check]:
    """Compare the error of the product of two noisy means."""
    adapted = _build(bench, bench.scale_size(TRIALS), mode="both")
    a, b = _set_factors(adapted)
    law = v * (INPUTS * b + OUTPUTS * a) + v**2 * INPUTS * OUTPUTS * RANK
    yield check_mean(law, adapted.measure_error(v, (("A",), ("B",))).cpu().numpy())


@state_law("algorithm lora: error of B with fixed A", "A with orthonormal rows; v N r")
def _fixed_a(bench: Bench) -> Iterator[Check]:
    """Compare the error of B, at an A of orthonormal rows."""
    keys: dict[str, Any] = {"mode": "freeze_a", "a_start": "orthonormal"}
    adapted = _build(bench, bench.scale_size(TRIALS), **keys)
    found = adapted.measure_error(0.1, (("B",),))
    yield check_mean(0.1 * OUTPUTS * RANK, found.cpu().numpy())


@state_law("algorithm lora: error of a square matrix", "between orthonormal factors; v r^2")
def _square(bench: Bench) -> Iterator[Check]:
    """Compare the error of R between common orthonormal B and A."""
    adapted = _build(bench, bench.scale_size(TRIALS), mode="square", basis="weight")
    found = adapted.measure_error(0.1, (("R",),))
    yield check_mean(0.1 * RANK**2, found.cpu().numpy())


@state_law("algorithm lora: error of A with own B", "v M |B_k|^2")
def _own_b(bench: Bench) -> Iterator[Check]:
    """Compare the error of a shared A at devices with factors B of their own."""
    adapted = _build(bench, bench.scale_size(TRIALS), mode="share_a")
    _, b = _set_factors(adapted)
    found = adapted.measure_error(0.1, (("A",),))
    yield check_mean(0.1 * INPUTS * b, found.cpu().numpy())


@state_law("algorithm lora: error of dense sums", "v M N, at full rank")
def _dense(bench: Bench) -> Iterator[Check]:
    """Compare the error of products that are summed in all their coordinates."""
    size = bench.scale_size(TRIALS // 4)
    adapted = _build(bench, size, OUTPUTS, mode="both", aggregate="dense")
    _set_factors(adapted)
    found = adapted.measure_error(0.1, (("product",),))
    yield check_mean(0.1 * INPUTS * OUTPUTS, found.cpu().numpy())


@state_law("algorithm lora: error of tangent coordinates", "v r (M + N)")
def _tangent(bench: Bench) -> Iterator[Check]:
    """Compare the error of the coordinates as they are sent, before projection and retraction."""
    adapted = _build(bench, bench.scale_size(TRIALS), mode="tangent")
    noise = {
        f"{part}.{LAYER}": adapted.draw(f"noise {part}", *adapted._get_shape(part)) for part in "ab"
    }
    layers = adapted.method.layers
    old, new = (
        lora_tangent.compose_tangents(layers, adapted.server | more)[LAYER] for more in ({}, noise)
    )
    change = torch.bmm(new[1], new[0]) - torch.bmm(old[1], old[0])
    law = RANK * (INPUTS + OUTPUTS)
    yield check_mean(law, change.square().sum((1, 2)).cpu().numpy())


@state_law("algorithm lora: error of a projected tangent vector", "v r (M + N - r), small v")
def _check_projection(bench: Bench) -> Iterator[Check]:
    """Compare the error after the server's step, whose retraction is exact to first order."""
    adapted, v = _build(bench, bench.scale_size(TRIALS // 4), mode="tangent"), 1e-12
    found = adapted.measure_error(v, (("a",), ("b",))) / v
    yield check_mean(RANK * (INPUTS + OUTPUTS - RANK), found.cpu().numpy())


def _draw_rows(adapted: Adapted, parts: str) -> tuple[tuple[Tensors, ...], tuple[Tensors, ...]]:
    """Draw increments of all devices; return their means [S, *shape], and the rows [n, *shape]."""
    means, rows = [], []
    for part in parts:
        draw = adapted.draw(f"rows {part}", DEVICES, *adapted._get_shape(part))
        means.append({f"{part}.{LAYER}": draw.mean(1)})
        rows.append({f"{part}.{LAYER}": draw.flatten(0, 1)})
    return tuple(means), tuple(rows)


def _average_products(adapted: Adapted, parts: str, rows: tuple[Tensors, ...]) -> Tensor:
    """Compute the mean over devices of the products [S, M, N] of factors and increments."""
    tensors = adapted.server | adapted.method.fixed
    every: dict[str, Tensor] = {}
    for name, block in tensors.items():
        every[name] = block.repeat_interleave(DEVICES, 0)
    for part, row in zip(parts, rows, strict=True):
        every[f"{part}.{LAYER}"] = every[f"{part}.{LAYER}"] + row[f"{part}.{LAYER}"]
    product = every[f"B.{LAYER}"]
    if f"R.{LAYER}" in every:
        product = product @ every[f"R.{LAYER}"]
    product = (product @ every[f"A.{LAYER}"]).mT
    return product.unflatten(0, (-1, DEVICES)).mean(1)


@state_law("algorithm lora: cross term of two means", "(K - 1) / K E |mean(B A)|^2")
def _cross_term(bench: Bench) -> Iterator[Check]:
    """Compare the product of the means of independent factors with the mean of the products."""
    adapted = _build(bench, bench.scale_size(TRIALS), mode="both")
    adapted.server[f"A.{LAYER}"].zero_()
    start = adapted.compute_weights(adapted.server)
    means, rows = _draw_rows(adapted, "AB")
    target = _average_products(adapted, "AB", rows)
    error = adapted.compute_weights(adapted.step(means)) - start - target
    law = (DEVICES - 1) / DEVICES * target.square().sum((1, 2))
    difference = error.square().sum((1, 2)) - law
    yield check_mean(0.0, difference.cpu().numpy())


EXACT = ("freeze_a", "square", "residual")


@state_law("algorithm lora: no cross term", "product of means = mean of products", "{}", EXACT)
def _no_cross_term(bench: Bench, mode: str) -> Iterator[Check]:
    """Compare the server's weight with the mean of the devices' weights."""
    keys: dict[str, Any] = {"mode": mode} | ({"basis": "weight"} if mode == "square" else {})
    adapted = _build(bench, 20, **keys)
    parts = {"freeze_a": "B", "square": "R", "residual": "AB"}[mode]
    means, rows = _draw_rows(adapted, parts)
    frozen = adapted.method.backbone.params[LAYER]
    target = frozen + _average_products(adapted, parts, rows)
    each = rows if mode == "residual" else None
    found = adapted.compute_weights(adapted.step(means, each))
    yield check_exact(0.0, float((found - target).abs().max()), 1e-12)


POWERS = ((1.0, 1.0), (1.5, 0.5), (0.2, 1.8))


@state_law(
    "algorithm lora: power of two groups", "noise N m / (f P K^2)", "f={0[0]}, {0[1]}", POWERS
)
def _powers(bench: Bench, factors: tuple[float, float]) -> Iterator[Check]:
    """Check noise and energy of two groups of equal size, which have a power factor each."""
    channel = {"name": "awgn", "snr_db": 3.0}
    rig = bench.build_rig(DEVICES, bench.scale_size(64), {"channel": channel, "power": "ci"})
    size = 512
    rows = [rig.draw_symbols(size, round, 1.0) for round in range(2)]
    groups = tuple(
        Group({"x": x}, power_factor=torch.full_like(x[:, 0], factor))
        for x, factor in zip(rows, factors, strict=True)
    )
    state = rig.link.channel.get_state(0)
    received, report = deliver(rig.link.transport, groups, rig.cohort, state, 0)
    power = 10.0**0.3
    for group, (x, factor) in enumerate(zip(rows, factors, strict=True)):
        exact = x.view(rig.num_trials, DEVICES, -1).mean(1)
        error = (received.mean[group]["x"] - exact).cpu().numpy()
        law = N / (factor * power * DEVICES**2)
        yield check_mean_square(law, error**2 / law, error.size, f"group {group}")
    yield check_exact(power, float(report.power.max()), 1e-5, "mean power of a symbol")


FACTORS = "otafl.algorithms.lora_factors"
