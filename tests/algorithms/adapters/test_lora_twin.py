"""Each mode of LoRA against its looped twin, two trials of different step sizes, in four rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.rival_rounds import (
    CLASSES,
    INPUTS,
    Rounds,
    compute_losses,
    draw_batches,
    get_shares,
)
from twins import lora as twin
from twins.setting import mlp

from otafl.core.contracts import Tensors

pytestmark = pytest.mark.twin

S, K, ROUNDS = 2, 5, 4
HYPER = {
    "learning_rate": [0.5, 0.2],
    "decay": [0.5, 0.0],
    "server_learning_rate": [1.0, 0.7],
}
EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}


def make(**settings: Any) -> Rounds:
    model = mlp((INPUTS, 7, 6, CLASSES), bias_start="uniform")
    return Rounds("lora", model, settings, **HYPER)


def rate(trial: int, t: int) -> float:
    return HYPER["learning_rate"][trial] / (1 + HYPER["decay"][trial] * t)


def merged(ours: Rounds) -> Tensors:
    (view,) = ours.method.build_views(ours.server, {}).values()
    return view.params


def twins(ours: Rounds) -> list[twin.Server]:
    """The same start, in NumPy."""
    start = ours.method.model.init(
        lambda name, shape: ours.streams.draw_uniform(f"init/{name}", 0, shape)
    )
    thin = ours.server | ours.method.fixed | {n: b[:, 0] for n, b in ours.devices.items()}
    out = []
    for trial in range(S):
        weights = [start[f"weight{i}"][trial].numpy() for i in range(3)]
        biases = [start[f"bias{i}"][trial].numpy() for i in range(3)]
        a, b, r = (
            [thin[f"{part}.weight{i}"][trial].numpy() for i in range(2)]
            if f"{part}.weight0" in thin
            else []
            for part in "ABR"
        )
        scale = ours.method.adapted.scale
        out.append(twin.Server(weights[:2], biases, weights[2], a, b, r, scale))
    return out


TRAINED = {"both": "ab", "freeze_a": "b", "square": "r", "residual": "ab"}


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "both"},
        {"mode": "both", "alpha": 5.0},
        {"mode": "freeze_a", "alpha": 1.0},
        {"mode": "alternate"},
        {"mode": "square", "alpha": 6.0},
        {"mode": "residual", "alpha": 4.0},
    ],
)
def test_rounds_are_the_twins(settings: dict[str, Any]) -> None:
    ours, mode = make(rank=3, **settings), settings["mode"]
    assert ours.method.adapted.scale == settings.get("alpha", 3.0) / 3  # the twins share it
    servers = twins(ours)
    for t in range(ROUNDS):
        one = ours.run_round(t)
        after = merged(ours)
        for trial in range(S):
            trained = TRAINED.get(mode) or ("a" if t % 2 else "b")
            step, eta = rate(trial, t), HYPER["server_learning_rate"][trial]
            share = get_shares(one, trial)
            done = [
                twin.local(servers[trial], trained, own, step) for own in draw_batches(one, trial)
            ]
            own = [device for device, _ in done]
            moved = twin.average(servers[trial], own, share, eta)
            if mode == "residual":
                moved = twin.correct(servers[trial], moved, own, share)
            servers[trial] = moved
            np.testing.assert_allclose(
                compute_losses(one, trial), [loss for _, loss in done], **EXACT
            )
            for i, weight in enumerate(moved.weights()):
                np.testing.assert_allclose(after[f"weight{i}"][trial].numpy(), weight, **EXACT)
                bias = after[f"bias{i}"][trial].numpy()
                np.testing.assert_allclose(bias, moved.biases[i], **EXACT)


def test_start_of_a_is_that_of_kaiming() -> None:
    """36 numbers of a matrix with 6 inputs, uniform in +-6^-1/2; the twins start from them."""
    start = make(rank=3, mode="both").server["A.weight0"]
    assert 0.9 / 6**0.5 < float(start.abs().max()) <= 1 / 6**0.5


def test_personal_rounds_are_the_twins() -> None:
    """Mode share_a: A and head are averaged, and each device goes on with its own B."""
    ours = make(rank=3, mode="share_a")
    servers = twins(ours)
    own_b = [[[b.copy() for b in servers[trial].b] for _ in range(K)] for trial in range(S)]
    for t in range(ROUNDS):
        one = ours.run_round(t)
        assert [name[:2] for name in one.payload[0].tensors] == ["A.", "A."]
        for trial in range(S):
            done = []
            for device, batches in enumerate(draw_batches(one, trial)):
                start = twin.copy(servers[trial])
                start.b = own_b[trial][device]
                moved, _ = twin.local(start, "ab", batches, rate(trial, t))
                own_b[trial][device] = moved.b
                done.append(moved)
            eta = HYPER["server_learning_rate"][trial]
            servers[trial] = twin.average(servers[trial], done, get_shares(one, trial), eta)
    x = torch.randn(3, INPUTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    view = ours.method.build_views(ours.server, ours.devices)["personal"]
    assert view.owner == "device"
    scores = view.predict_fn(view.params, x[None])
    for trial in range(S):
        for device in range(K):
            side = twin.copy(servers[trial])
            side.b = own_b[trial][device]
            z = x.numpy()
            for i, (w, bias) in enumerate(zip(side.weights(), side.biases, strict=True)):
                z = z @ w + bias
                z = np.maximum(z, 0.0) if i < 2 else z
            np.testing.assert_allclose(scores[trial * K + device].numpy(), z, **EXACT)
