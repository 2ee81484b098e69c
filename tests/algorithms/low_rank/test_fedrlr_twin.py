"""FedRLR against its dense looped twin, round by round, with the same draws on both sides.

Two trials of different step sizes and penalties, four devices (one with fewer samples than a
minibatch), two hidden layers, two local steps; ranks below and above the layers' sides, and with
2R above them; all placements of 1/K, both penalty schedules, biases free of error and over the
air, GBMA and truncated inversion with silent devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import pi, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import fedrlr as twin
from twins.setting import everyone, local_data, minibatch, mlp

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.core.contracts import Cohort, Group, LocalContext, Received, Tensors
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, to_dense

pytestmark = pytest.mark.twin

S, K, WIDTHS, ROUNDS, STEPS = 2, 4, (12, 7, 9, 5), 4, 2
LAYERS = range(3)
SIZES = [[8, 11, 30, 6], [4, 20, 9, 9]]
HYPER = {"q": [0.5, 4.0], "nu": [1.0, 10.0], "c1": [0.3, 0.6], "mu": [0.5, 1.5]}
GAMMA, THRESHOLD = 40.0, 0.6

FLAGS = [(True, None), (False, None), (True, False), (False, True)]
CASES = list(product(FLAGS, ["inverse_eta", "constant"], ["ideal", "ota"], ["gbma", "tci"]))


@dataclass
class Side:
    """Ours, with what its rounds need."""

    algorithm: FedRLR
    server: Tensors
    devices: Tensors
    hyper: dict[str, Tensor]
    streams: Streams
    cohort: Cohort


def ours(config: FedRLR.Settings, weight: list[list[float]], dtype: torch.dtype) -> Side:
    streams = Streams([3] * S, [0, 1], dtype=dtype)
    hyper = {name: torch.tensor(value, dtype=dtype) for name, value in HYPER.items()}
    algorithm = FedRLR(config, mlp(WIDTHS), K)
    server, devices = algorithm.init(streams, hyper)
    devices = {n: b.expand(S, K, *b.shape[2:]).clone().flatten(0, 1) for n, b in devices.items()}
    cohort = everyone(torch.tensor(weight, dtype=dtype))
    return Side(algorithm, server, devices, hyper, streams, cohort)


def dense_model(blocks: Tensors, row: int) -> twin.Model:
    """Row of factored blocks as the twin's dense model."""
    theta = []
    for i in LAYERS:
        point = LowRank(*(blocks[f"{n}{i}"][row : row + 1].double() for n in "usv"))
        theta.append(to_dense(point)[0].numpy())
    return twin.Model(theta, [blocks[f"b{i}"][row].double().numpy() for i in LAYERS])


def plan(config: FedRLR.Settings, trial: int) -> twin.Schedule:
    value = {name: values[trial] for name, values in HYPER.items()}
    penalty = config.inv_k_gradient if config.inv_k_penalty is None else config.inv_k_penalty
    return twin.Schedule(
        value["q"],
        value["nu"],
        value["c1"] if config.mu_schedule == "inverse_eta" else None,
        value["mu"],
        1 / K if config.inv_k_gradient else 1.0,
        1 / K if penalty else 1.0,
    )


def draw_air(side: Side, config: FedRLR.Settings, power: str, t: int) -> list[twin.Air]:
    """Each trial's channel, power and noise of a round, from the streams."""
    fades = side.streams.draw_normal("fade", t, (K, 2)).double().numpy() / sqrt(2)
    h = fades[..., 0] + 1j * fades[..., 1]
    if power == "gbma":
        p = sqrt(GAMMA) * np.exp(-1j * np.angle(h))  # eq. (29)
    else:
        p = np.where(np.abs(h) ** 2 >= THRESHOLD, sqrt(GAMMA) / h, 0.0)
    bias_rho = None
    if config.bias_mode == "ota":
        bias_rho = sqrt(GAMMA * pi) / 2 if power == "gbma" else sqrt(GAMMA)

    def noise(name: str, i: int) -> list[np.ndarray]:
        shape = tuple(side.server[f"{name}{i}"].shape[1:])
        if name == "v":
            shape = shape[::-1]
        z = side.streams.draw_normal(f"noise/{name}{i}", t, (2, *shape)).double().numpy()
        return [(row[0] + 1j * row[1]) / sqrt(2) for row in z]

    z = {name: [noise(name, i) for i in LAYERS] for name in "uvb"}
    return [
        twin.Air(
            h=h[s],
            p=p[s],
            rho=sqrt(GAMMA),
            z_u=[layer[s] for layer in z["u"]],
            z_v=[layer[s] for layer in z["v"]],
            z_b=[layer[s] for layer in z["b"]],
            bias_rho=bias_rho,
        )
        for s in range(S)
    ]


def deliver(payload: tuple[Group, ...], side: Side, air: list[twin.Air]) -> Received:
    """The exact sums of what ours sent, with the same gains and noise. A row of ours carries
    sqrt(w_k) where the paper carries 1 and divides by K in the end, so noise is over sqrt(K)."""
    dtype = side.cohort.weight.dtype
    gain = torch.tensor(np.array([(a.h * a.p).real for a in air]))
    weight = side.cohort.weight.double().view(S, K)
    active = torch.tensor(np.array([a.p != 0 for a in air]), dtype=torch.float64)
    count = (weight * active).sum(1)

    def total(block: Tensor, coefficient: Tensor) -> Tensor:
        rows = block.double().unflatten(0, (S, K))
        return torch.einsum("sk,sk...->s...", coefficient, rows)

    def noise(name: str, layer: int) -> Tensor:
        z = np.array([getattr(a, f"z_{name}")[layer].real for a in air])
        return torch.tensor(z).mT if name == "v" else torch.tensor(z)

    factors, biases = payload
    assert (factors.weighting, factors.route) == ("none", "uplink")
    assert biases.weighting == "mean"
    assert biases.route == ("uplink" if air[0].bias_rho else "ideal")
    mean: tuple[Tensors, Tensors] = ({}, {})
    for name, block in factors.tensors.items():
        z = noise(name[0], int(name[1])) / sqrt(K)
        mean[0][name] = ((total(block.mT, gain) + z) / sqrt(GAMMA)).mT.to(dtype)
    for name, block in biases.tensors.items():
        if air[0].bias_rho is None:
            mean[1][name] = total(block, weight).to(dtype)
        else:
            z = noise("b", int(name[1])) / K
            value = (total(block, weight * gain) + z) / air[0].bias_rho
            mean[1][name] = (value / count[:, None]).to(dtype)
    return Received(mean, (count.to(dtype), torch.ones(S, dtype=dtype)), None, None)


def signs_of(side: Side, t: int) -> list[list[list[np.ndarray]]]:
    """F's signs, [trial][device][layer], where the stream "rlc" puts them."""
    ranks = side.algorithm.ranks
    cohort = side.cohort
    shape = (sum(r * r for r in ranks),)
    u = side.streams.draw_device_uniform("rlc", t, cohort.trial, cohort.device, shape)
    flat = np.where(u.numpy() < 0.5, 1.0, -1.0)
    cut = np.cumsum([r * r for r in ranks])[:-1]
    rows = [
        [f.reshape(r, r) for f, r in zip(np.split(row, cut), ranks, strict=True)] for row in flat
    ]
    return [rows[s * K : (s + 1) * K] for s in range(S)]


def assert_close(blocks: Tensors, row: int, expected: twin.Model, tolerance: float) -> None:
    """Dense Theta and bias of every layer, relative to their norm."""
    got = dense_model(blocks, row)
    for a, b in zip(got.theta + got.bias, expected.theta + expected.bias, strict=True):
        assert np.linalg.norm(a - b) <= tolerance * max(float(np.linalg.norm(b)), 1e-2)


def compare(
    config: FedRLR.Settings,
    power: str,
    dtype: torch.dtype = torch.float64,
    tolerance: float = 1e-8,
    weight: list[list[float]] | None = None,
    restart: bool = False,
) -> int:
    """Runs both sides; `restart` gives the twin our state again in every round. Returns how many
    signals were silent."""
    side = ours(config, weight or [[1 / K] * K] * S, dtype)
    ranks = list(side.algorithm.ranks)
    data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], side.streams, batch_size=5, steps=STEPS)
    begin = side.algorithm.model.init(
        lambda n, shape: side.streams.draw_uniform(f"init/{n}", 0, shape)
    )
    servers = [
        twin.start(
            [begin[f"weight{i}"][s].double().numpy() for i in LAYERS], ranks, config.init_rescale
        )
        for s in range(S)
    ]
    owned = [[servers[s]] * K for s in range(S)]
    for s in range(S):
        assert_close(side.server, s, servers[s], tolerance)
    silent = 0
    for t in range(ROUNDS):
        if restart:
            servers = [dense_model(side.server, s) for s in range(S)]
            owned = [[dense_model(side.devices, s * K + k) for k in range(K)] for s in range(S)]
        air = draw_air(side, config, power, t)
        silent += sum(int((a.p == 0).sum()) for a in air)
        work = data.select_cohort(t, side.cohort)
        batches = [work.draw_batch(step) for step in range(STEPS)]

        rows = side.algorithm.broadcast(side.server, side.cohort).expand_rows(side.cohort, 0, S * K)
        algorithm, streams = side.algorithm, side.streams
        context = LocalContext(side.cohort, side.hyper, streams, t, work)
        state, payload, loss = algorithm.run_local_update(rows, dict(side.devices), context)
        received = deliver(payload, side, air)
        side.devices = state
        side.server = algorithm.update_server(side.server, received, context)
        signs = signs_of(side, t)
        for s in range(S):
            for k in range(K):
                own = [minibatch(b, s * K + k) for b in batches]
                owned[s][k], expected = twin.local(
                    owned[s][k], servers[s], ranks, own, plan(config, s), t
                )
                assert_close(state, s * K + k, owned[s][k], tolerance)
                assert abs(float(loss[s * K + k]) - expected) <= tolerance * (1.0 + expected)
            like = [[state[f"u{i}"][s * K + k].numpy() for i in LAYERS] for k in range(K)]
            shares = side.cohort.weight.double().view(S, K)[s].numpy()
            servers[s] = twin.aggregate(owned[s], ranks, signs[s], like, shares, air[s])
            assert_close(side.server, s, servers[s], tolerance)
    return silent


@pytest.mark.parametrize(
    ("flags", "schedule", "bias", "power"),
    [
        pytest.param(*case, marks=pytest.mark.slow if (place // 4 + place) % 3 else ())
        for place, case in enumerate(CASES)
    ],
)
def test_equals_the_dense_twin(
    flags: tuple[bool, bool | None], schedule: str, bias: str, power: str
) -> None:
    """R = 4, and 2R exceeds 7, the smaller side of two layers, and 5, that of the last."""
    config = FedRLR.Settings(
        rank=4,
        inv_k_gradient=flags[0],
        inv_k_penalty=flags[1],
        mu_schedule=schedule,
        bias_mode=bias,
    )
    silent = compare(config, power)
    assert (silent > 0) == (power == "tci")


@pytest.mark.parametrize(
    ("rank", "rescale"), [(1, True), (6, False), (30, True), ((3, 7, 1), True)]
)
def test_equals_the_dense_twin_at_every_rank(rank: int | tuple[int, ...], rescale: bool) -> None:
    """From one, through 2R above a side, to ranks that are clipped to the layers' sides."""
    config = FedRLR.Settings(rank=rank, init_rescale=rescale, inv_k_gradient=False)
    compare(config, "tci")


def test_equals_the_dense_twin_at_unequal_weights() -> None:
    weight = [[0.1, 0.2, 0.3, 0.4], [0.55, 0.05, 0.25, 0.15]]
    compare(FedRLR.Settings(bias_mode="ota"), "gbma", weight=weight)


def test_float32_is_within_rounding_of_the_twin_each_round() -> None:
    """1e-5 of the norm a round."""
    compare(FedRLR.Settings(rank=3), "tci", torch.float32, 1e-5, restart=True)
