"""Holds FedEM against its looped twin, against numbers by hand, and in its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from support.rival_rounds import (
    CLASSES,
    INPUTS,
    MODEL,
    RATE,
    RATES,
    SERVER,
    SIZES,
    WHO,
    Rounds,
    compute_losses,
    draw_batches,
    get_shares,
    list_members,
    to_arrays,
)
from support.rounding import assert_agree
from torch import Tensor
from twins import rivals as twin
from twins.network import Array
from twins.setting import minibatch

from otafl.algorithms.personal.fedem import FedEM
from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import Draw, Model, flatten, unflatten
from otafl.models.softmax_regression import SoftmaxRegression

F64 = torch.float64

EQUAL_OR_NOT = pytest.mark.parametrize("sizes", [SIZES, [[12] * 5] * 2])
"""Samples of the devices: with padding, or minibatches and local data without weights."""

pytestmark = pytest.mark.exact


def components(rounds: Rounds, s: int) -> list[list[Array]]:
    """Return the server's models of a trial."""
    parts = rounds.server["model"][s].split(MODEL.num_params)
    return [to_arrays(MODEL, unflatten(one[None], MODEL.shapes), 0) for one in parts]


@pytest.mark.twin
@EQUAL_OR_NOT
def test_equals_the_looped_twin(sizes: list[list[int]]) -> None:
    ours = Rounds("fedem", MODEL, {"components": 3}, sizes=sizes, **RATES)
    models = [components(ours, s) for s in range(2)]
    pi = [[np.full(3, 1 / 3)] * 5 for _ in range(2)]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        assert [group.num_coordinates for group in one.payload] == [3 * MODEL.num_params]
        everything = one.work.load_full_batch()
        for s in range(2):
            there = list_members(one, s)
            rows = (one.cohort.trial == s).nonzero().squeeze(1).tolist()
            data = [minibatch(everything, row) for row in rows]
            for held in data:  # what is there, without the padding
                keep = held.weight > 0
                held.x, held.y, held.weight = held.x[keep], held.y[keep], held.weight[keep]
            mean, new, loss = twin.fedem(
                models[s],
                [pi[s][k] for k in there],
                data,
                draw_batches(one, s),
                get_shares(one, s),
                RATE[s],
            )
            for m in range(3):
                moved = twin.plus(mean[m], models[s][m], -1.0)
                models[s][m] = twin.plus(models[s][m], moved, SERVER[s])
            for k, own in zip(there, new, strict=True):
                pi[s][k] = own
            for ours_m, theirs in zip(components(ours, s), models[s], strict=True):
                for a, b in zip(ours_m, theirs, strict=True):
                    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
            np.testing.assert_allclose(ours.devices["mixing"][s], pi[s], rtol=0, atol=1e-12)
            np.testing.assert_allclose(compute_losses(one, s), loss, rtol=1e-12)
    spread = np.array(pi).std(1).max()
    assert spread > 1e-3  # pi has become the devices' own


class Given(Model):
    """Gives scores that are its parameters, whatever the sample: two classes."""

    def __init__(self) -> None:
        self.shapes, self.macs = {"scores": (2,)}, 0

    def init(self, draw: Draw) -> Tensors:
        return {"scores": 0.0 * draw("scores", (2,))}

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        scores: Tensor = params["scores"]
        return scores[:, None].expand(-1, x.shape[1], -1)


def hand() -> tuple[FedEM, Tensors, Tensors]:
    """Make one trial of two devices, with two models that give class 0 the probabilities 3/4 and
    1/5."""
    method = FedEM(FedEM.Settings(components=2), Given(), 2)
    odds = torch.tensor([[math.log(3), 0.0, math.log(0.25), 0.0]], dtype=F64)
    pi = torch.tensor([[[0.5, 0.5], [0.2, 0.8]]], dtype=F64)
    return method, {"model": odds}, {"mixing": pi}


def test_views_mix_probabilities() -> None:
    method, server, devices = hand()
    views = method.build_views(server, devices)
    x = torch.zeros(1, 3, 1, dtype=F64)
    assert views["personal"].owner == "device"
    personal = views["personal"].predict_fn(views["personal"].params, x).exp()
    first, second = 0.5 * 3 / 4 + 0.5 / 5, 0.2 * 3 / 4 + 0.8 / 5
    expected = [[[p, 1 - p]] * 3 for p in (first, second)]
    np.testing.assert_allclose(personal, expected, rtol=1e-12)
    shared = views["global"].predict_fn(views["global"].params, x).exp()
    mean = 0.35 * 3 / 4 + 0.65 / 5
    np.testing.assert_allclose(shared[0], [[mean, 1 - mean]] * 3, rtol=1e-12)


def test_components_start_apart() -> None:
    """The first starts as every other method does."""
    streams = Streams([4, 4], [0, 1], dtype=F64)
    regression = SoftmaxRegression(SoftmaxRegression.Settings(), (INPUTS,), CLASSES)
    for model in (MODEL, regression):
        server, devices = FedEM(FedEM.Settings(components=3), model, 5).init(streams, {})
        parts = server["model"].split(model.num_params, 1)
        plain = model.init(lambda name, shape: streams.draw_uniform(f"init/{name}", 0, shape))
        assert_agree(parts[0], flatten(plain))
        for a in range(3):
            for b in range(a):
                assert (parts[a] - parts[b]).abs().sum(1).gt(0.1).all()
        bound = 1 / INPUTS**0.5
        weights = [unflatten(part, model.shapes)["weight0"] for part in parts]
        assert all(0.8 * bound < float(w.abs().max()) <= bound for w in weights[1:])
        assert torch.equal(devices["mixing"], torch.full((2, 1, 3), 1 / 3, dtype=F64))


def test_refuses_models_that_stay_the_same() -> None:
    streams = Streams([4], [0], dtype=F64)
    with pytest.raises(UserError, match=r"algorithm\.components: got 2, .* use components: 1"):
        FedEM(FedEM.Settings(components=2), Given(), 2).init(streams, {})
    FedEM(FedEM.Settings(components=1), Given(), 2).init(streams, {})
