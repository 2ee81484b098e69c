"""pFedBreD, pFedMe and Per-FedAvg by numbers worked out by hand, limits and closed forms.

The toy: softmax regression without bias, W [classes, features] = 0, X = [[1, 0], [0, 2]], y =
[0, 1], the full batch as every minibatch, two local steps of one device's first round. Each W is
(a, -b, -a, b) by rows. Linear and quadratic losses: closed forms of the proximal solvers.

Mutations that must fail: lg's or meg's start of the solver exchanged, mh's base unmoved, one
gradient step too many or too few, the envelope's step without lambda, the momentum of Nesterov's
steps constant or one step early, its look-ahead point returned; the warm start or decay of
pFedMe's "original" left out; flops or gradients_per_step that forget the meta-step; the envelope
gradient kept with the other sign, of the first local step, or without the penalty.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from twins.setting import everyone, local_data, mlp

from otafl.algorithms.config import FedAvgConfig
from otafl.algorithms.config_prior import PerFedAvgConfig, PFedBreDConfig, PFedMeConfig
from otafl.algorithms.fedavg import FedAvg
from otafl.algorithms.per_fedavg import PerFedAvg
from otafl.algorithms.pfedbred import PFedBreD
from otafl.algorithms.pfedme import PFedMe
from otafl.algorithms.prox import envelope_step, gradient_steps, nesterov_steps
from otafl.core.contracts import Batch, Blocks, Broadcast
from otafl.core.rng import Streams
from otafl.models.module import ModuleModel
from otafl.models.span import Held, Slope

RATES = {
    "penalty": 15.0,
    "personal_learning_rate": 0.01,
    "learning_rate": 0.01,
    "eta": 0.05,
    "eta_alpha": 0.01,
    "weight_decay": 1e-3,
    "spread": 1e-4,
    "decay": 0.0,
    "server_learning_rate": 1.0,
}
COHORT = everyone(torch.ones(1, 1, dtype=torch.float64))
STREAMS = Streams([0], [0], dtype=torch.float64)


class Whole:
    """Local work whose every minibatch is the toy's two samples."""

    def __init__(self, steps: int) -> None:
        self.cohort, self.round, self.steps = COHORT, 0, steps

    def batch(self, step: int, draw: int = 0) -> Batch:
        x = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], dtype=torch.float64)
        return Batch(x, torch.tensor([[0, 1]]), None)


def toy(method: Any, steps: int = 2, **changes: float) -> tuple[list[float], list[float]]:
    """(a, b) of the local model and of the personal one after the toy's round."""
    hyper = {n: torch.tensor([v], dtype=torch.float64) for n, v in (RATES | changes).items()}
    _, start = method.init(STREAMS, hyper)
    devices = {name: torch.zeros_like(block)[:, 0] for name, block in start.items()}
    broadcast = Broadcast({"model": torch.zeros(1, 4, dtype=torch.float64)}, per_device=True)
    state, (group,), loss = method.local(broadcast, devices, COHORT, Whole(steps), hyper, STREAMS)
    assert 0.6 < float(loss) <= 0.6931471805599454
    personal = state.get("personal.weight", group.blocks["model"])
    return pair(group.blocks["model"]), pair(personal)


def pair(w: Tensor) -> list[float]:
    a, minus_b, minus_a, b = w.flatten().tolist()
    assert a == pytest.approx(-minus_a, abs=1e-14)
    assert b == pytest.approx(-minus_b, abs=1e-14)
    return [a, b]


def model() -> ModuleModel:
    return ModuleModel(nn.Linear(2, 2, bias=False).double(), (2,), 2)


def prior(strategy: str, variant: str = "code", **keys: Any) -> PFedBreD:
    config = PFedBreDConfig.model_validate({"strategy": strategy, "variant": variant, **keys})
    return PFedBreD(config, model(), 1)


def pfedme(**keys: Any) -> PFedMe:
    return PFedMe(PFedMeConfig.model_validate(keys), model(), 1)


def per_fedavg(**keys: Any) -> PerFedAvg:
    return PerFedAvg(PerFedAvgConfig.model_validate(keys), model(), 1)


NONE = [0.00276586, 0.00543942], [0.01059705, 0.02080900]
ROWS: list[tuple[Any, dict[str, float], list[float], list[float] | None]] = [
    (pfedme(), {}, *NONE),
    (prior("none"), {}, *NONE),
    (pfedme(), {"steps": 1}, [0.00138389, 0.00272714], [0.00922593, 0.01818096]),
    (pfedme(), {"penalty": 30.0}, [0.00413576, 0.00813056], None),
    (pfedme(prox_steps=400), {}, [0.00491200, 0.00933200], [0.01881219, 0.03564866]),
    (prior("lg"), {}, [0.00275895, 0.00538522], [0.01306714, 0.02557509]),
    (prior("meg"), {}, [0.00273497, 0.00537744], [0.01085240, 0.02130483]),
    (prior("meg", "paper"), {}, [0.00276522, 0.00543447], [0.01105409, 0.02168502]),
    (prior("mh"), {}, [0.00769420, 0.01510512], [0.01584929, 0.03087647]),
    (prior("mh"), {"eta": 0.0}, [0.00773337, 0.01518337], None),
    (prior("mh", "paper"), {}, [0.00275814, 0.00537896], [0.01364688, 0.02668330]),
    (prior("mh", "c2"), {}, [0.00275816, 0.00537951], [0.01364040, 0.02663332]),
    (pfedme(implementation="original"), {}, *([[0.00328006, 0.00640874]] * 2)),
    (
        pfedme(implementation="original"),
        {"weight_decay": 0.0},
        *([[0.00328017, 0.00640894]] * 2),
    ),
    (FedAvg(FedAvgConfig(), model(), 1), {}, [0.00499375, 0.00995000], None),
    (per_fedavg(), {}, [0.00498128, 0.00985101], None),
]


@pytest.mark.parametrize(("method", "changes", "local", "personal"), ROWS)
def test_toy_numbers(
    method: Any, changes: dict[str, Any], local: list[float], personal: list[float] | None
) -> None:
    w, theta = toy(method, **changes)
    assert w == pytest.approx(local, abs=6e-9)
    if personal is not None:
        assert theta == pytest.approx(personal, abs=6e-9)


def test_per_fedavg_second_order_is_the_gradient_of_the_adapted_loss() -> None:
    """One step, against autograd through the inner step; the difference is of order delta^2."""
    alpha, x, y = 0.4, *(getattr(Whole(1).batch(0), name)[0] for name in ("x", "y"))
    start = torch.tensor([[0.3, -0.2], [0.1, 0.5]], dtype=torch.float64)

    def loss(w: Tensor) -> Tensor:
        return nn.functional.cross_entropy(x @ w.T, y)

    w = start.clone().requires_grad_()
    (inner,) = torch.autograd.grad(loss(w), w, create_graph=True)
    (exact,) = torch.autograd.grad(loss(w - alpha * inner), w)
    sent = {}
    for hessian in ("none", "difference"):
        ours = per_fedavg(hessian=hessian)
        changes = RATES | {"personal_learning_rate": alpha, "learning_rate": 1.0}
        hyper = {n: torch.tensor([v], dtype=torch.float64) for n, v in changes.items()}
        broadcast = Broadcast({"model": start.reshape(1, 4).clone()}, per_device=True)
        _, (group,), _ = ours.local(broadcast, {}, COHORT, Whole(1), hyper, STREAMS)
        sent[hessian] = -group.blocks["model"].view(2, 2)
    torch.testing.assert_close(sent["difference"], exact, rtol=0, atol=1e-8)
    assert float((sent["none"] - exact).abs().max()) > 1e-2


SIZES = [[20, 10, 3], [9, 25, 4]]


def states(method: Any, rounds: int = 2, **changes: float) -> list[Blocks]:
    """Device state and payload of a network in real minibatches, some of them padded; the server
    stays at its start."""
    streams = Streams([5, 5], [0, 1], dtype=torch.float64)
    data = local_data(SIZES, 6, 3, streams, batch_size=4, steps=3)
    cohort = everyone(torch.full((2, 3), 1 / 3, dtype=torch.float64))
    rates = RATES | {"eta": 0.3, "eta_alpha": 0.2} | changes
    hyper = {n: torch.tensor([v, v], dtype=torch.float64) for n, v in rates.items()}
    server, start = method.init(streams, hyper)
    devices = {n: b.expand(2, 3, *b.shape[2:]).flatten(0, 1).clone() for n, b in start.items()}
    out = []
    for t in range(rounds):
        broadcast = method.broadcast(server, cohort).rows(cohort, 0, 6)
        work = data.work(t, cohort)
        devices, (group,), _ = method.local(broadcast, devices, cohort, work, hyper, streams)
        kept = {name: b.clone() for name, b in devices.items() if name.startswith("personal")}
        out.append(kept | {"model": group.blocks["model"].clone()})
    return out


def network(method: Any, config: Any, **keys: Any) -> Any:
    return method(config.model_validate(keys), mlp((6, 8, 3)), 3)


def of(strategy: str, variant: str = "code") -> PFedBreD:
    return network(PFedBreD, PFedBreDConfig, strategy=strategy, variant=variant)


SAME = [
    ("none", "meg", {"eta": 0.0}),
    ("none", "lg", {"eta_alpha": 0.0}),
    ("meg", "mh", {"eta_alpha": 0.0}),
    ("none", "mh", {"eta": 0.0, "eta_alpha": 0.0}),
    ("lg/paper", "mh/paper", {"eta": 0.0}),
    ("meg/paper", "mh/paper", {"eta_alpha": 0.0}),
    ("meg/paper", "mh/c2", {"eta_alpha": 0.0}),
]


@pytest.mark.parametrize(("one", "other", "changes"), SAME)
def test_same_bit_for_bit(one: str, other: str, changes: dict[str, float]) -> None:
    first, second = (states(of(*name.split("/")), **changes) for name in (one, other))
    for ours, theirs in zip(first, second, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    away = states(of(*other.split("/")))  # and what is set to zero does matter
    assert not torch.equal(away[1]["model"], second[1]["model"])


def test_pfedme_is_strategy_none_bit_for_bit() -> None:
    first, second = states(of("none")), states(network(PFedMe, PFedMeConfig))
    for ours, theirs in zip(first, second, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    original = states(network(PFedMe, PFedMeConfig, implementation="original"))
    assert not torch.allclose(original[0]["model"], first[0]["model"])


def test_hybrid_without_memory_is_not_pfedme() -> None:
    hybrid, plain = states(of("mh"), eta=0.0), states(of("none"))
    assert not torch.allclose(hybrid[0]["model"], plain[0]["model"], rtol=0.1)


def test_memory_is_zero_in_the_first_step() -> None:
    assert toy(prior("meg"), steps=1) == toy(pfedme(), steps=1)
    assert toy(prior("meg", "paper"), steps=1) == toy(pfedme(), steps=1)


def exact(method: Any, penalty: float, steps: int = 2) -> tuple[list[float], list[float]]:
    """The toy with a solver that converges: curvature at most penalty + 2."""
    return toy(method, steps, penalty=penalty, personal_learning_rate=1 / (penalty + 2))


def test_large_penalty() -> None:
    """pFedMe becomes federated averaging, lg first-order MAML with one batch, and theta - mu falls
    as 1 / lambda."""
    fedavg = toy(FedAvg(FedAvgConfig(), model(), 1))[0]
    maml = toy(per_fedavg())[0]
    many = {"prox_steps": 60}
    assert exact(pfedme(**many), 1e6)[0] == pytest.approx(fedavg, rel=3e-6)
    assert exact(prior("lg", **many), 1e6)[0] == pytest.approx(maml, rel=3e-6)
    assert exact(prior("lg", **many), 1e6)[0] != pytest.approx(fedavg, rel=1e-4)
    near = [exact(pfedme(**many), penalty, steps=1)[1] for penalty in (1e3, 1e4)]
    assert near[0] == pytest.approx([10 * value for value in near[1]], rel=2e-3)


@pytest.mark.parametrize("strategy", ["none", "lg", "meg"])
def test_small_penalty(strategy: str) -> None:
    """w stays, and theta is K plain steps from where the solver starts."""
    w, theta = toy(prior(strategy), penalty=0.0)
    assert w == [0.0, 0.0]
    steps = 6 if strategy == "lg" else 5  # lg's start is a step of the same size
    fedavg = toy(FedAvg(FedAvgConfig(), model(), 1), steps=steps)[0]
    assert theta == pytest.approx(fedavg, abs=1e-15)


class Curved:
    """A span over vectors [n, d] with loss a/2 |x - b|^2 + <c, x>."""

    def __init__(self, a: float, b: Tensor, c: Tensor) -> None:
        self.a, self.b, self.c = a, b, c
        self.origin, self.directions = b, [b]

    def slope(self, point: Tensor) -> Slope:
        loss = 0.5 * self.a * ((point - self.b) ** 2).sum(1) + (self.c * point).sum(1)
        return Slope(loss, {"x": self.a * (point - self.b) + self.c}, point)

    def descend_(self, point: Tensor, slope: Slope, step: Tensor) -> None:
        assert isinstance(slope.by, dict)
        point.sub_(step[:, None] * slope.by["x"])

    def write_(self, point: Tensor, out: Held) -> None:
        out.rest.copy_(point)

    def between(self, start: Tensor, end: Tensor) -> Held:
        return Held(end - start, None)


def vectors(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, dtype=torch.float64, generator=generator)


B, C, START, MEAN = (vectors(seed) for seed in range(4))
PENALTY = torch.tensor([15.0, 30.0], dtype=torch.float64)
STEP = torch.tensor([0.01, 0.01], dtype=torch.float64)


def test_linear_loss() -> None:
    """lambda (mu - theta_K) = (1 - rho^K) c - lambda rho^K (s - mu), rho = 1 - alpha lambda."""
    span = Curved(0.0, B, C)
    kept = ((1 - STEP * PENALTY) ** 5)[:, None]
    assert (1 - kept).flatten().tolist() == pytest.approx([0.5562946875, 0.83193], abs=1e-12)
    rate = torch.tensor([0.01, 0.03], dtype=torch.float64)
    theta, moved, loss = envelope_step(span, B, START, MEAN, STEP, PENALTY, 5, rate)
    expected = (1 - kept) * C - PENALTY[:, None] * kept * (START - MEAN)
    torch.testing.assert_close(PENALTY[:, None] * (MEAN - theta), expected)
    torch.testing.assert_close(moved, B - rate[:, None] * expected)
    torch.testing.assert_close(loss, (C * START).sum(1))


def test_quadratic_loss() -> None:
    """theta_K = theta* + (1 - alpha (a + lambda))^K (s - theta*), theta* = (a b + lambda mu) / (a +
    lambda), and the envelope's gradient is a lambda / (a + lambda) (mu - b)."""
    a, many = 3.0, 4000
    span = Curved(a, B, torch.zeros_like(C))
    weight = PENALTY[:, None]
    best = (a * B + weight * MEAN) / (a + weight)
    for steps in (1, 5):
        theta, _ = gradient_steps(span, START, MEAN, STEP, PENALTY, steps)
        factor = ((1 - STEP * (a + PENALTY)) ** steps)[:, None]
        torch.testing.assert_close(theta, best + factor * (START - best))
    theta, _ = gradient_steps(span, START, MEAN, STEP, PENALTY, many)
    torch.testing.assert_close(weight * (MEAN - theta), a * weight / (a + weight) * (MEAN - B))


def test_nesterov_steps() -> None:
    """Against the recurrence written with numbers; one step is a plain one."""
    a = 3.0
    span = Curved(a, B, torch.zeros_like(C))
    best = (a * B + PENALTY[:, None] * MEAN) / (a + PENALTY[:, None])
    factor = (1 - STEP * (a + PENALTY))[:, None]  # of the error, in a step without momentum
    error, before = START - best, START - best
    for j in range(1, 7):
        ahead = error + (j - 1) / (j + 2) * (error - before)
        before, error = error, factor * ahead
        theta, loss = nesterov_steps(span, START, MEAN, STEP, PENALTY, j)
        torch.testing.assert_close(theta, best + error)
        torch.testing.assert_close(loss, 0.5 * a * ((START - B) ** 2).sum(1))
    assert torch.equal(START, vectors(2))


def test_coherence_keeps_the_last_envelope_gradient() -> None:
    """lambda (mu - theta) of the last local step is the step of w there, over alpha_m."""
    keys = {"strategy": "lg", "coherence": True}
    rows = []
    for steps in (2, 3):
        ours = PFedBreD(PFedBreDConfig.model_validate(keys), mlp((6, 8, 3)), 3)
        streams = Streams([5], [0], dtype=torch.float64)
        data = local_data(SIZES[:1], 6, 3, streams, batch_size=4, steps=steps)
        cohort = everyone(torch.full((1, 3), 1 / 3, dtype=torch.float64))
        hyper = {n: torch.tensor([v], dtype=torch.float64) for n, v in RATES.items()}
        server, start = ours.init(streams, hyper)
        devices = {n: b.expand(1, 3, *b.shape[2:]).flatten(0, 1).clone() for n, b in start.items()}
        broadcast = ours.broadcast(server, cohort).rows(cohort, 0, 3)
        work = data.work(0, cohort)
        state, (group,), _ = ours.local(broadcast, devices, cohort, work, hyper, streams)
        rows.append((state["update"], group.blocks["model"]))
    torch.testing.assert_close(rows[0][1] - rows[1][1], 0.01 * rows[1][0])
    blocks = {"update": rows[1][0][None]}
    measured = ours.measures({}, blocks)
    assert measured.keys() == {"update_coherence", "update_coherence_log"}
    assert 0 < float(measured["update_coherence"]) < 1
    assert prior("lg").measures({}, {}) == {}


COUNTS = [
    (pfedme(), 5),
    (prior("none"), 5),
    (prior("meg"), 5),
    (prior("lg"), 6),
    (prior("mh", "paper"), 6),
    (prior("mh"), 7),
    (prior("mh", "c2"), 7),
    (per_fedavg(), 2),
    (per_fedavg(hessian="difference"), 4),
]


@pytest.mark.parametrize(("method", "count"), COUNTS)
def test_gradients_of_a_step(method: Any, count: int) -> None:
    """As counted, and as called for."""
    assert method.constants() == {"gradients_per_step": float(count)}
    assert method.flops(40) == count * method.model.training_flops(40)
    calls = []
    gradients = method.model.gradients
    method.model.gradients = lambda *given: (calls.append(1), gradients(*given))[1]
    toy(method, steps=2)
    assert len(calls) == 2 * count


REFUSED = [
    ({"penalty": 200.0}, "below 2"),
    ({"family": "poisson"}, "gaussian would do"),
    ({"variant": "c2", "strategy": "lg"}, "strategy: mh"),
    ({"c2_two_batches": True}, "leave it out"),
]


@pytest.mark.parametrize(("keys", "told"), REFUSED)
def test_refuses(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PFedBreDConfig.model_validate(keys)
    with pytest.raises(ValueError, match="below 2"):
        PFedMeConfig(penalty=300.0)
    PFedBreDConfig(penalty=150.0)  # overshoots, and converges
