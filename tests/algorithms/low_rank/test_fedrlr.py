"""FedRLR by itself: what is sent, its start, and how orthonormal its factors stay."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from twins.setting import Quiet, everyone, local_data, mlp

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.core.contracts import LocalContext
from otafl.core.rng import Streams
from otafl.models.softmax_regression import SoftmaxRegression

pytestmark = pytest.mark.exact

F64 = torch.float64


def regression(m: int, n: int) -> SoftmaxRegression:
    return SoftmaxRegression(SoftmaxRegression.Settings(), (m,), n)


def hyper_of(
    config: FedRLR.Settings, dtype: torch.dtype = F64, **changes: float
) -> dict[str, Tensor]:
    """The config's numeric fields, some changed, for one trial."""
    fields = {name: getattr(config, name) for name in ("q", "nu", "c1", "mu")} | changes
    return {name: torch.tensor([value], dtype=dtype) for name, value in fields.items()}


@pytest.mark.parametrize("bias_mode", ["ideal", "ota"])
def test_what_is_sent(bias_mode: str) -> None:
    """Fact 18: 7,272 reals at R = 4 in place of 268,800, 2.7054 %, and 522 biases of their own."""
    model = mlp((784, 256, 256, 10))
    algorithm = FedRLR(FedRLR.Settings(bias_mode=bias_mode), model, 1)
    cohort = everyone(torch.ones(1, 1))
    streams = Streams([0], [0])
    server, devices = algorithm.init(streams, {})
    own = {name: block.flatten(0, 1) for name, block in devices.items()}
    broadcast = algorithm.broadcast(server, cohort)
    hyper = hyper_of(algorithm.settings, torch.float32)
    context = LocalContext(cohort, hyper, streams, 0, Quiet(cohort, 784))
    state, (factors, biases), _ = algorithm.run_local_update(
        broadcast.expand_rows(cohort, 0, 1), own, context
    )
    assert factors.num_coordinates == 7272
    assert factors.num_coordinates / model.macs == pytest.approx(0.027054, abs=5e-7)
    assert biases.num_coordinates == 522
    assert all(b.data_ptr() != state[name].data_ptr() for name, b in biases.tensors.items())
    assert (factors.route, factors.weighting) == ("uplink", "none")
    assert biases.route == ("uplink" if bias_mode == "ota" else "ideal")


def test_drift_is_corrected_by_local_steps() -> None:
    """In float32, 40 local steps a round: after every 64 steps, so right at the end of the 8th
    round, U and V are as orthonormal as rounding allows, and in between they are near it."""
    streams = Streams([2], [0])
    model = mlp((10, 8, 4))
    algorithm = FedRLR(FedRLR.Settings(rank=4, inv_k_gradient=False), model, 2)
    cohort = everyone(torch.full((1, 2), 0.5))
    data = local_data([[20, 20]], 10, 4, streams, 3, 40)
    hyper = hyper_of(algorithm.settings, torch.float32, q=100.0)
    server, devices = algorithm.init(streams, hyper)
    own = {name: b.expand(1, 2, *b.shape[2:]).flatten(0, 1) for name, b in devices.items()}
    broadcast = algorithm.broadcast(server, cohort)
    off = []
    for t in range(8):
        rows = broadcast.expand_rows(cohort, 0, 2)
        context = LocalContext(cohort, hyper, streams, t, data.select_cohort(t, cohort))
        own, _, _ = algorithm.run_local_update(rows, dict(own), context)
        bases = torch.cat([own[name].mT @ own[name] for name in ("u0", "v0", "u1", "v1")])
        off.append(float((bases - torch.eye(4)).abs().max()))
    assert max(off) < 2e-5
    assert off[7] < 1e-6 < min(off[:7])


def test_start_is_on_the_manifold() -> None:
    """Theta_k = Theta_0 of rank exactly R and of the norm of the dense start, trial by trial; also
    for a model that starts at zero, which has no rank."""
    streams = Streams([1, 1], [0, 1], dtype=F64)
    model = mlp((9, 7, 5))
    start = model.init(lambda name, shape: streams.draw_uniform(f"init/{name}", 0, shape))
    server, devices = FedRLR(FedRLR.Settings(rank=2), model, 3).init(streams, {})
    for i in range(2):
        norm = start[f"weight{i}"].norm(dim=(1, 2))
        torch.testing.assert_close(server[f"s{i}"].norm(dim=1), norm, rtol=1e-12, atol=0)
        assert server[f"u{i}"].shape[2] == 2
        assert (server[f"s{i}"] > 0).all()
        for name in "usvb":
            assert torch.equal(devices[f"{name}{i}"][:, 0], server[f"{name}{i}"])
    server, _ = FedRLR(FedRLR.Settings(rank=4), regression(9, 5), 3).init(streams, {})
    assert (server["s0"] > 0.01).all()
    assert server["u0"].isfinite().all()
    assert not torch.equal(server["u0"][0], server["u0"][1])
