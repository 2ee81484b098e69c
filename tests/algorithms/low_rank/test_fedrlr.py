"""FedRLR's numbers worked by hand: the penalty's contraction, the schedules, what is sent, an
exact uplink; and what it refuses.
"""

from __future__ import annotations

import pytest
import torch
from support.rounding import assert_agree
from torch import Tensor
from twins.setting import Quiet, everyone, local_data, mlp

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.core.contracts import Group, LocalContext, Received, Tensors
from otafl.core.rng import Streams
from otafl.factorised.lowrank import LowRank, to_dense
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


def random_point(m: int, n: int, r: int, rows: int) -> LowRank:
    generator = torch.Generator().manual_seed(6)
    u, v = (
        torch.linalg.qr(torch.randn(rows, side, r, generator=generator, dtype=F64))[0]
        for side in (m, n)
    )
    s = torch.rand(rows, r, generator=generator, dtype=F64).sort(1, descending=True).values + 0.5
    return LowRank(u, s, v)


def as_blocks(point: LowRank, bias: float) -> Tensors:
    b = point.v.new_full((len(point.v), point.v.shape[1]), bias)
    return {"u0": point.u, "s0": point.s, "v0": point.v, "b0": b}


def pull(
    own: LowRank,
    anchor: LowRank,
    config: FedRLR.Settings,
    devices: int,
    t: int = 0,
    steps: int = 1,
    **changes: float,
) -> tuple[Tensor, Tensor]:
    """Theta_k [devices, M, N] and biases after a round without a loss; biases start 1 at the
    devices and 0 at the server."""
    m, n = own.u.shape[1], own.v.shape[1]
    algorithm = FedRLR(config, regression(m, n), devices)
    cohort = everyone(torch.full((1, devices), 1 / devices, dtype=F64))
    copies = LowRank(*(block.expand(devices, *block.shape[1:]).clone() for block in own))
    broadcast = algorithm.broadcast(as_blocks(anchor, 0.0), cohort).expand_rows(cohort, 0, devices)
    hyper, streams = hyper_of(config, F64, **changes), Streams([0], [0], dtype=F64)
    context = LocalContext(cohort, hyper, streams, t, Quiet(cohort, m, t, steps))
    state, _, loss = algorithm.run_local_update(broadcast, as_blocks(copies, 1.0), context)
    assert (loss == 0).all()
    return to_dense(LowRank(state["u0"], state["s0"], state["v0"])), state["b0"]


@pytest.mark.parametrize(
    ("flags", "factor"),
    [
        ({}, 0.3),
        ({"inv_k_gradient": True}, 0.3 / 5),
        ({"inv_k_gradient": False, "inv_k_penalty": True}, 0.3 / 5),
        ({"inv_k_gradient": True, "inv_k_penalty": False}, 0.3),
    ],
)
@pytest.mark.parametrize(("t", "steps"), [(0, 3), (75, 1)])
def test_penalty_contracts_the_gap(
    flags: dict[str, bool], factor: float, t: int, steps: int
) -> None:
    """Fact 7: Theta_0 = alpha Theta_k contracts the gap by 1 - kappa c1 a step, at every t, since
    eta mu = c1 (fact 17)."""
    own = random_point(6, 5, 3, 1)
    anchor = LowRank(own.u, 0.4 * own.s, own.v)
    config = FedRLR.Settings(rank=3, **flags)
    moved, bias = pull(own, anchor, config, devices=5, t=t, steps=steps, c1=0.3)
    left = (1 - factor) ** steps
    expected = (to_dense(anchor) + left * (to_dense(own) - to_dense(anchor))).expand(5, 6, 5)
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(bias, torch.full((5, 5), left, dtype=F64), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("t", "eta", "mu"), [(0, 0.002, 3.0), (75, 0.00186047, 3.225)])
def test_schedule_at_the_paper_s_constants(t: int, eta: float, mu: float) -> None:
    """Fact 17. The bias's pull shows eta mu: c1 = 0.006 at the default, 3 eta if mu = 3 is
    constant; mu follows."""
    own = random_point(6, 5, 3, 1)
    for schedule, expected in (("inverse_eta", 0.006), ("constant", 3.0 * eta)):
        config = FedRLR.Settings(rank=3, q=2, mu_schedule=schedule)
        _, bias = pull(own, own, config, devices=1, t=t)
        torch.testing.assert_close(1 - bias, torch.full_like(bias, expected), rtol=5e-6, atol=0)
    assert mu == pytest.approx(0.006 / eta, rel=5e-6)


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


def total(group: Group) -> Tensors:
    """The sum over the devices of one trial."""
    return {name: block.sum(0, keepdim=True) for name, block in group.tensors.items()}


def test_uplink_is_exact_for_one_device_at_rank_one() -> None:
    """Fact 21: no noise, K = R = 1, unit gain. At R = 2 it is not: F F^T is not the identity."""
    for rank in (1, 2):
        algorithm = FedRLR(FedRLR.Settings(rank=rank), regression(6, 5), 1)
        streams = Streams([1], [0], dtype=F64)
        cohort = everyone(torch.ones(1, 1, dtype=F64))
        own = as_blocks(random_point(6, 5, rank, 1), 0.5)
        hyper = hyper_of(algorithm.settings, c1=0.0)
        broadcast = algorithm.broadcast(own, cohort).expand_rows(cohort, 0, 1)
        errors = []
        for t in range(8):
            context = LocalContext(cohort, hyper, streams, t, Quiet(cohort, 6, t))
            state, payload, _ = algorithm.run_local_update(broadcast, own, context)
            mean = tuple(total(group) for group in payload)
            received = Received(mean, (torch.ones(1, dtype=F64),) * 2, None, None)
            server = algorithm.update_server(own, received, context)
            assert_agree(server["b0"], state["b0"])
            theta, wanted = (to_dense(LowRank(b["u0"], b["s0"], b["v0"])) for b in (server, state))
            errors.append(float((theta - wanted).norm() / wanted.norm()))
        assert (max(errors) < 1e-9) == (rank == 1)


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
