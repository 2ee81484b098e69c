"""Each mode of LoRA against its looped twin, two trials of different step sizes, over three rounds;
and against FedAvg on the weights, where the adapters have full rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from twins import lora as twin
from twins.network import gradients
from twins.setting import everyone, local_data, minibatch, mlp

from otafl.algorithms.adapters.lora import Lora
from otafl.core.contracts import Context, LocalContext, Payload, Received, Tensors
from otafl.core.rng import Streams

pytestmark = pytest.mark.twin

F64 = torch.float64
S, K, WIDTHS, STEPS, ROUNDS = 2, 4, (9, 7, 6, 5), 2, 4
SIZES = [[8, 11, 30, 6], [3, 20, 9, 9]]
HYPER = {
    "learning_rate": [0.5, 0.2],
    "decay": [0.5, 0.0],
    "server_learning_rate": [1.0, 0.7],
}
EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}


class Bench:
    """A method, its data, and the state of server and devices."""

    def __init__(self, **settings: Any) -> None:
        self.streams = Streams([3] * S, [0, 1], dtype=F64)
        self.hyper = {name: torch.tensor(value, dtype=F64) for name, value in HYPER.items()}
        size = torch.tensor(SIZES, dtype=F64)
        self.cohort = everyone(size / size.sum(1, keepdim=True))
        self.data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], self.streams, 4, STEPS)
        model = mlp(WIDTHS, bias_start="uniform")
        self.method = Lora(Lora.Settings(**settings), model, K)
        self.server, devices = self.method.init(self.streams, self.hyper)
        self.devices = {n: b.expand(S, K, *b.shape[2:]).flatten(0, 1) for n, b in devices.items()}

    def train(self, t: int) -> tuple[Payload, torch.Tensor]:
        rows = self.method.broadcast(self.server, self.cohort).expand_rows(self.cohort, 0, S * K)
        work = self.data.select_cohort(t, self.cohort)
        context = LocalContext(self.cohort, self.hyper, self.streams, t, work)
        with torch.inference_mode():
            self.devices, payload, loss = self.method.run_local_update(rows, self.devices, context)
        return payload, loss

    def step(self, payload: Payload, t: int) -> None:
        mean = []
        for group in payload:
            weighted = {}
            for name, block in group.tensors.items():
                shape = (S, K, *[1] * (block.dim() - 1))
                weighted[name] = (block.unflatten(0, (S, K)) * self.cohort.weight.view(shape)).sum(
                    1
                )
            mean.append(weighted)
        one = torch.ones(S, dtype=F64)
        each = tuple(group.tensors for group in payload)
        received = Received(tuple(mean), (one,) * len(mean), each, None)
        context = Context(self.cohort, self.hyper, self.streams, t)
        self.server = self.method.update_server(self.server, received, context)

    def batches(self, t: int, trial: int, device: int) -> list[Any]:
        work = self.data.select_cohort(t, self.cohort)
        return [minibatch(work.draw_batch(step), trial * K + device) for step in range(STEPS)]

    def rate(self, trial: int, t: int) -> float:
        return HYPER["learning_rate"][trial] / (1 + HYPER["decay"][trial] * t)

    def merged(self) -> Tensors:
        (view,) = self.method.build_views(self.server, {}).values()
        return view.params

    def twins(self) -> list[twin.Server]:
        """The same start, in NumPy."""
        start = self.method.model.init(
            lambda name, shape: self.streams.draw_uniform(f"init/{name}", 0, shape)
        )
        thin = self.server | self.method.fixed
        for name, block in self.devices.items():
            thin[name] = block.unflatten(0, (S, K))[:, 0]
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
            scale = self.method.adapted.scale
            out.append(twin.Server(weights[:2], biases, weights[2], a, b, r, scale))
        return out


def shares(trial: int) -> list[float]:
    return [n / sum(SIZES[trial]) for n in SIZES[trial]]


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
    bench, mode = Bench(rank=3, **settings), settings["mode"]
    assert bench.method.adapted.scale == settings.get("alpha", 3.0) / 3  # the twins share it
    twins = bench.twins()
    for t in range(ROUNDS):
        payload, loss = bench.train(t)
        bench.step(payload, t)
        merged = bench.merged()
        for trial in range(S):
            trained = TRAINED.get(mode) or ("a" if t % 2 else "b")
            step, eta = bench.rate(trial, t), HYPER["server_learning_rate"][trial]
            done = [
                twin.local(twins[trial], trained, bench.batches(t, trial, device), step)
                for device in range(K)
            ]
            own = [one for one, _ in done]
            moved = twin.average(twins[trial], own, shares(trial), eta)
            if mode == "residual":
                moved = twin.correct(twins[trial], moved, own, shares(trial))
            twins[trial] = moved
            for device in range(K):
                expected = done[device][1]
                np.testing.assert_allclose(float(loss[trial * K + device]), expected, **EXACT)
            for i, weight in enumerate(moved.weights()):
                np.testing.assert_allclose(merged[f"weight{i}"][trial].numpy(), weight, **EXACT)
                bias = merged[f"bias{i}"][trial].numpy()
                np.testing.assert_allclose(bias, moved.biases[i], **EXACT)


def test_start_of_a_is_that_of_kaiming() -> None:
    """54 numbers of a matrix with 9 inputs, uniform in +-1/3; the twins start from them."""
    start = Bench(rank=3, mode="both").server["A.weight0"]
    assert 0.9 / 3 < float(start.abs().max()) <= 1 / 3


def test_personal_rounds_are_the_twins() -> None:
    """Mode share_a: A and head are averaged, and each device goes on with its own B."""
    bench = Bench(rank=3, mode="share_a")
    twins = bench.twins()
    own_b = [[[b.copy() for b in twins[trial].b] for _ in range(K)] for trial in range(S)]
    for t in range(ROUNDS):
        payload, _ = bench.train(t)
        bench.step(payload, t)
        for trial in range(S):
            done = []
            for device in range(K):
                start = twin.copy(twins[trial])
                start.b = own_b[trial][device]
                step = bench.rate(trial, t)
                one, _ = twin.local(start, "ab", bench.batches(t, trial, device), step)
                own_b[trial][device] = one.b
                done.append(one)
            eta = HYPER["server_learning_rate"][trial]
            twins[trial] = twin.average(twins[trial], done, shares(trial), eta)
    assert len(payload[0].tensors) == 2
    assert all(name.startswith("A.") for name in payload[0].tensors)
    x = torch.randn(3, WIDTHS[0], generator=torch.Generator().manual_seed(0), dtype=F64)
    devices = {n: b.unflatten(0, (S, K)) for n, b in bench.devices.items()}
    view = bench.method.build_views(bench.server, devices)["personal"]
    assert view.owner == "device"
    scores = view.predict_fn(view.params, x[None])
    for trial in range(S):
        for device in range(K):
            side = twin.copy(twins[trial])
            side.b = own_b[trial][device]
            z = x.numpy()
            for i, (w, bias) in enumerate(zip(side.weights(), side.biases, strict=True)):
                z = z @ w + bias
                z = np.maximum(z, 0.0) if i < 2 else z
            np.testing.assert_allclose(scores[trial * K + device].numpy(), z, **EXACT)


def test_square_orthonormal_a_is_fedavg_on_the_weights() -> None:
    """With A of orthonormal rows and columns and alpha = r, B A moves as W under SGD: the step by B
    is G^T A^T, and the weight moves by A^T A G = G."""
    bench = Bench(rank=9, mode="freeze_a")
    for name, a in bench.method.fixed.items():
        bench.method.fixed[name] = torch.linalg.qr(a.mT)[0].mT
    assert [layer.rank for layer in bench.method.layers] == [9, 7]
    for t in range(ROUNDS):
        before = {name: block.numpy().copy() for name, block in bench.merged().items()}
        payload, _ = bench.train(t)
        bench.step(payload, t)
        after = bench.merged()
        for trial in range(S):
            start = [before[f"weight{i}"][trial] for i in range(3)]
            biases = [before[f"bias{i}"][trial] for i in range(3)]
            mean = [np.zeros_like(w) for w in start]
            for device in range(K):
                w, b = [one.copy() for one in start], [one.copy() for one in biases]
                for batch in bench.batches(t, trial, device):
                    _, by_w, by_b = gradients(w, b, batch)
                    w = [a - bench.rate(trial, t) * g for a, g in zip(w, by_w, strict=True)]
                    b[-1] = b[-1] - bench.rate(trial, t) * by_b[-1]  # the others are frozen
                mean = [m + shares(trial)[device] * a for m, a in zip(mean, w, strict=True)]
            eta = HYPER["server_learning_rate"][trial]
            for i, (old, new) in enumerate(zip(start, mean, strict=True)):
                expected = old + eta * (new - old)
                np.testing.assert_allclose(after[f"weight{i}"][trial].numpy(), expected, **EXACT)
