"""Holds the operations that every method says its devices do to what is counted in a real round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from contract.small import ALGORITHMS, engine
from support.operations import Counted

from otafl.algorithms import parameters
from otafl.algorithms.base import Algorithm
from otafl.core.contracts import Workload
from otafl.core.rng import Streams
from otafl.data.training_data import CohortData
from otafl.engine.assembly import make_workload
from otafl.models.span import PlainForm

pytestmark = pytest.mark.exact

NORMAL = 4.0
"""Operations of a normal number: logarithm, root, cosine, product."""


class LocalRound(NamedTuple):
    """Holds what was counted of a device of this load and level."""

    counted: Counted
    method: Algorithm
    load: Workload
    level: int


def run_local_round(name: str, keys: Mapping[str, Any], rounds: int = 1) -> LocalRound:
    """Count the local work of one device of three, 100 samples of digits each, in all rounds.

    Left out are what is no arithmetic of the device's: drawing minibatches and reading samples, and
    the generator of random numbers, of which normal ones count NORMAL. Methods that step several
    times on a minibatch are given the plain form of their model: the other one finds the same
    models by fewer operations.
    """
    three = {"devices.count": 3, "devices.participants": 1, "trials": 1, "data.partition": "iid"}
    one = engine({"algorithm": name, "transport": "ideal"} | three | dict(keys))
    method, counted, seen = one.parts.algorithm, Counted(), []
    method.__dict__["form"] = PlainForm(method.model)
    local = method.run_local_update

    def watched(broadcast: Any, devices: Any, context: Any) -> Any:
        seen.append(context.cohort)
        with counted:
            return local(broadcast, devices, context)

    with ExitStack() as patches:
        for kind, names in {
            CohortData: ("draw_batch", "load_full_batch"),
            Streams: ("draw_device_uniform", "draw_device_normal"),
        }.items():
            for of in names:
                patches.enter_context(_ignore_calls(counted, kind, of))
        patches.enter_context(patch.object(method, "run_local_update", watched))
        for t in range(rounds):
            one.run_round(t)
    assert [cohort.num_rows for cohort in seen] == [1] * rounds
    cohort = seen[-1]
    load = make_workload(one.parts.scenario, one.parts.samples).select_devices(
        cohort.flat_index.numpy()
    )
    return LocalRound(counted, method, load, int(cohort.capacity_level))


def _ignore_calls(counted: Counted, kind: type, name: str) -> Any:
    """Patch a method so that what it does is not counted."""
    plain = getattr(kind, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with counted.pause():
            out = plain(*args, **kwargs)
        if name == "draw_device_normal" and counted.is_counting:  # the server draws, too
            counted.add(NORMAL * out.numel())
        return out

    return patch.object(kind, name, wrapped)


WITHIN = 0.05

STEPS, BATCH = 20, 10

NORMED = {"name": "conv_net", "channels": [4, 8], "norm": "group"}


CNN = {"name": "cnn", "channels": [6, 8], "kernel": 3, "hidden": [20]}

CASES: dict[str, dict[str, Any]] = {
    "one step": {"model.hidden": [48, 24], "training.local_steps": 1, "training.batch_size": 8},
    "many steps": {
        "model.hidden": [40, 30],
        "training.local_steps": STEPS,
        "training.batch_size": BATCH,
    },
    "convolutions": {"model": CNN, "training.local_steps": 4, "training.batch_size": 10},
}
"""A device has 100 samples of 64 numbers in ten classes."""

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "fedrep": [{"head_factor": 4}],
    "fedfomo": [{"validation": 0.4, "models": 1}],
    "pfedme": [{"implementation": "original"}],
    "pfedbred": [{"strategy": "meg"}, {"strategy": "mh", "variant": "paper"}],
    "fedrlr": [{"rank": 10}],
    "lora": [
        {"mode": "freeze_a", "rank": 2},
        {"mode": "square", "rank": 8},
        {"mode": "tangent", "rank": 6},
        {"levels": [4, 2], "weights": "norm"},
    ],
    "tdpfed": [{"factor_update": "alternate"}],
    "heterofl": [{"clip_norm": None}],
    "fedhm": [
        {"sends": "product"},
        {"levels": [0.5], "sends": "tangent", "clip_norm": 1.0},
    ],
}


def keys(name: str, case: str, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a case changes, for a method."""
    of = dict(CASES[case])
    if name == "fedbn":  # needs a model with normalisation
        of = {key: value for key, value in of.items() if not key.startswith("model")}
        of["model"] = NORMED
    return of | {"algorithm": {"name": name, **(settings or {})}}


# What the simulation does beside a device's own work, as it is written for many devices at once.


def posteriors(of: LocalRound) -> float:
    """FedEM: the posterior of every minibatch anew, which a device keeps of its E-step."""
    forward = of.method.model.count_forward_flops(of.load.effective_batch_size).item()
    return of.method.settings.components * of.load.num_steps * forward


def fixed_heads(of: LocalRound) -> float:
    """FedRep: gradient and step of the head in the body's steps, which are undone."""
    sizes = [math.prod(of.method.model.shapes[name]) for name in of.method.head]
    return of.load.num_steps * (
        2.0 * max(sizes) * of.load.effective_batch_size.item() + 2.0 * sum(sizes)
    )


def class_sums(of: LocalRound) -> float:
    """FedPAC: sums of each class as a product with who is in it; a device adds each sample once.
    And squares of the second pass, and a mask."""
    width, classes = of.method.width, of.method.classes
    return (4.0 * classes + 2.0) * width * of.load.num_samples.item()


def both_sides(of: LocalRound) -> float:
    """FedHM: the gradient of a Gram matrix U^T U by autograd, once for each of its sides."""
    shapes = of.method.levels[of.level].network.shapes
    pairs = of.method.layout.list_factor_pairs(shapes)
    sides = [(shapes[left][0] + shapes[right][1], shapes[right][0]) for left, right in pairs]
    return of.load.num_steps * sum(2.0 * both * rank**2 for both, rank in sides)


def every_mode(of: LocalRound) -> float:
    """TDPFed, mode by mode: the gradients of all factors for each of them. Of two modes they share
    the residual, so the other mode's product is what is too much."""
    method = of.method
    if method.settings.factor_update == "joint":
        return 0.0
    products = sum(
        2 * 2.0 * rank * math.prod(modes)
        for modes, rank in zip(method.cp.modes, method.cp.ranks, strict=True)
    )
    return of.load.num_steps * method.settings.factor_steps * products


def padded_adapters(of: LocalRound) -> float:
    """LoRA: adapters of a lower level padded to the first rank, and in mode tangent the gradients
    by the point's factors, which autograd computes with those by a and b."""
    method, load = of.method, of.load
    samples = load.num_steps * load.effective_batch_size.item()
    if method.settings.mode == "tangent":
        sides = [
            layer.positions * layer.rank * (layer.inputs + layer.outputs * (2 if not i else 1))
            for i, layer in enumerate(method.layers)
        ]
        return 2.0 * samples * sum(sides)
    levels = method.levels
    if not levels:
        return 0.0
    return float(levels[0].flops_fn(load).item() - levels[of.level].flops_fn(load).item())


def directions_kept(of: LocalRound) -> float:
    """Zeroth-order: a device keeps no directions, so it draws all of them in each local step."""
    numbers = of.method.settings.directions * of.method.model.num_params
    return -(of.load.num_steps - 1) * numbers * NORMAL


BESIDE: dict[str, Callable[[LocalRound], float]] = {
    "zeroth_order": directions_kept,
    "lora": padded_adapters,
    "fedem": posteriors,
    "fedrep": fixed_heads,
    "fedpac": class_sums,
    "fedhm": both_sides,
    "tdpfed": every_mode,
}


def apart(of: LocalRound, name: str) -> float:
    """How far what the method says is from what was counted of the device's own, relative."""
    beside = BESIDE[name](of) if name in BESIDE else 0.0
    return said(of) / (of.counted.total - beside) - 1.0


def said(of: LocalRound) -> float:
    """What the method says of the device."""
    method, load = of.method, of.load
    levels = method.levels
    flops = levels[of.level].flops_fn(load) if levels else method.count_flops(load)
    return float(flops.item())


DENSE_KERNELS = ("fedrlr", "fedrlr_plus", "lora")
"""Methods whose factored convolutions are computed as dense ones for many devices at once. A device
passes its samples through the factors, which costs less for small ranks."""


def is_counted(name: str, case: str) -> bool:
    return case != "convolutions" or name not in ("pfedbayes", "fedbn", *DENSE_KERNELS)


# examples: methods with many operations a step
FAST = dict.fromkeys(("zeroth_order", "tdpfed", "pfedbred", "pfedme", "fedamp"), "one step")
"""Cases of the fast tests other than many steps."""


@pytest.fixture(autouse=True)
def _tensor_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train by tensor operations, which torch can count."""
    monkeypatch.setattr(parameters, "choose_kernel", lambda *given: None)


ALL = [
    pytest.param(
        name,
        case,
        marks=() if case == FAST.get(name, "many steps") else pytest.mark.slow,
    )
    for name in ALGORITHMS
    for case in CASES
    if is_counted(name, case)
]


@pytest.mark.parametrize(("name", "case"), ALL)
def test_operations_are_those_of_a_round(name: str, case: str) -> None:
    assert abs(apart(run_local_round(name, keys(name, case)), name)) < WITHIN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"), [(name, one) for name, several in VARIANTS.items() for one in several]
)
def test_operations_of_settings(name: str, settings: Mapping[str, Any]) -> None:
    assert abs(apart(run_local_round(name, keys(name, "many steps", settings)), name)) < WITHIN


@pytest.mark.slow
def test_operations_of_coordinates_by_conjugate_gradients() -> None:
    """TDPFed's of convolutions; how many iterations it takes depends on the data."""
    one = run_local_round("tdpfed", keys("tdpfed", "convolutions", {"aggregation": "tangent"}))
    assert abs(apart(one, "tdpfed")) < WITHIN


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_device_has_its_own(name: str) -> None:
    """Devices of unequal data, in one array, are as each alone; more data are no less work, and a
    device with less than a minibatch does no work on the padding."""
    method = engine(keys(name, "one step") | {"transport": "ideal"}).parts.algorithm
    samples = np.array([[4.0, 20.0, 20.0], [50.0, 3.0, 700.0]])
    for flops in [level.flops_fn for level in method.levels] or [method.count_flops]:
        together = flops(Workload(6, 10, samples))
        alone = [flops(Workload(6, 10, np.array(one))).item() for one in samples.ravel()]
        np.testing.assert_allclose(together, np.reshape(alone, samples.shape), rtol=1e-12)
        assert (np.diff(together.ravel()[samples.ravel().argsort()]) >= 0).all()
        few = flops(Workload(6, 10, np.array([4.0, 8.0])))
        as_minibatches = flops(Workload(6, 4, np.array([4.0, 4.0])))
        assert few[0] == as_minibatches[0] < few[1]
