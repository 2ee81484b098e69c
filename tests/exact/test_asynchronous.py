"""FedAsync and FedBuff: sequences of arrivals against looped twins, hand-worked numbers, and limits
in which they are federated averaging.

Mutations that must fail: s without the + 1, or with the root of it, or 1/(1 + d); the hinge at
d < b, without + 1, or falling from 0; one trial's exponent for all; alpha missing, or s in the
uplink's weights but not in a (or twice); data shares left out of a; a of rows known to be lost;
x_new - x for x_new - x_tau with increments; rho left out of the local steps, or its centre the
server's present model. fedbuff: the buffer's mean under s in place of the sum over M, 1/came left
out, the buffer or the count not emptied, emptied in all trials, steps not counted, momentum from
the last slot and not the last step, the step taken twice by a slot that brings twice as many, data
shares in the weights, the number that came not rounded, lost rows counted; the buffer broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from support.rival_rounds import CLASSES, INPUTS, SIZES, STEPS, arrays, exact
from torch import Tensor
from twins import asynchronous as twin
from twins.rivals import Params, plus
from twins.setting import everyone, local_data, minibatch, mlp

from otafl.core import registry
from otafl.core.contracts import Blocks, Cohort, Group, Received
from otafl.core.rng import Streams
from otafl.models.base import unflatten
from otafl.scenario import ScenarioError

MODEL = mlp((INPUTS, 5, CLASSES))
RATES = [0.3, 0.05]
F64 = torch.float64


@dataclass
class Sent:
    """What a device is at: the flat payload, and the version it began with."""

    row: Tensor
    version: int


class Slots:
    """A method over two trials of five devices that come and go: `begin` and `slot` by (trial,
    device)."""

    def __init__(
        self,
        name: str,
        settings: dict[str, Any] | None = None,
        sizes: list[list[int]] = SIZES,
        **fields: Any,
    ) -> None:
        """fields: stackable ones, a list by trial."""
        config = registry.settings("algorithm", name).model_validate(settings or {})
        self.method = registry.component("algorithm", name)(config, MODEL, 5)
        self.streams = Streams([5, 5], [0, 1], dtype=F64)
        numbers = {n: v for n, v in config.model_dump().items() if type(v) in (float, int)}
        self.hyper = {n: torch.tensor(fields.get(n, [v, v]), dtype=F64) for n, v in numbers.items()}
        self.data = local_data(sizes, INPUTS, CLASSES, self.streams, 4, STEPS)
        count = torch.tensor(sizes, dtype=F64)
        self.all = everyone(count / count.sum(1, keepdim=True))
        self.server, _ = self.method.init(self.streams, self.hyper)
        self.sent: dict[tuple[int, int], Sent] = {}
        self.slots = 0

    def cohort(self, who: list[tuple[int, int]]) -> Cohort:
        """With the method's own weights."""
        cohort = self.all.take(torch.tensor([5 * s + k for s, k in sorted(who)]))
        return replace(cohort, weight=self.method.row_weights(cohort))

    def version(self) -> list[int]:
        if hasattr(self.method, "version"):
            return list(self.method.version(self.server).tolist())
        return [self.slots, self.slots]

    def begin(self, who: list[tuple[int, int]], draw: int) -> Tensor:
        """Local work of what is broadcast now, on minibatches of round `draw`; the losses."""
        cohort = self.cohort(who)
        down = self.method.broadcast(self.server, cohort)
        assert list(down.blocks) == ["model"]
        rows = down.rows(cohort, 0, cohort.size)
        work = self.data.work(draw, cohort)
        state, (group,), loss = self.method.local(rows, {}, cohort, work, self.hyper, self.streams)
        assert state == {}
        for key, row in zip(sorted(who), group.blocks["model"], strict=True):
            self.sent[key] = Sent(row.clone(), self.version()[key[0]])
        return loss

    def slot(self, who: list[tuple[int, int]]) -> list[int]:
        """These arrive together; their staleness."""
        cohort = self.all.take(torch.tensor([5 * s + k for s, k in sorted(who)]))
        now, sent = self.version(), [self.sent.pop(key) for key in sorted(who)]
        late = [now[s] - one.version for (s, _), one in zip(sorted(who), sent, strict=True)]
        cohort = replace(cohort, staleness=torch.tensor(late))
        cohort = replace(cohort, weight=self.method.row_weights(cohort))
        rows = torch.stack([one.row for one in sent])
        received = exact((Group({"model": rows}),), cohort)
        before = {name: block.clone() for name, block in self.server.items()}
        old = self.server
        self.server = self.method.combine(
            old, received, cohort, self.slots, self.hyper, self.streams
        )
        for name, block in before.items():
            assert torch.equal(old[name], block)
            assert self.server[name].data_ptr() != old[name].data_ptr()
            assert self.server[name].dtype == block.dtype
        self.slots += 1
        return late

    def batches(self, s: int, k: int, draw: int) -> Any:
        work = self.data.work(draw, self.all.take(torch.tensor([5 * s + k])))
        return [minibatch(work.batch(step), 0) for step in range(STEPS)]

    def model(self, s: int, block: str = "model") -> Params:
        return arrays(MODEL, unflatten(self.server[block], MODEL.shapes), s)


def close(ours: Params, theirs: Params) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def arrivals(slots: int, most: int = 1) -> list[list[tuple[int, int]]]:
    """Random devices of each trial, slot by slot, 1 to `most` of them."""
    rng = np.random.default_rng(3)
    out = []
    for _ in range(slots):
        who = []
        for s in range(2):
            chosen = rng.choice(5, rng.integers(1, most + 1), replace=False)
            who += [(s, int(k)) for k in chosen]
        out.append(sorted(who))
    return out


KINDS: dict[str, dict[str, Any]] = {
    "constant": {},
    "polynomial": {"exponent": [0.5, 1.3]},
    "hinge": {"hinge_slope": [10.0, 0.4], "hinge_after": [4.0, 1.0]},
}


def of(kind: str, s: int, late: int) -> float:
    """s(t - tau) of a trial."""
    given = KINDS[kind]
    a = given.get("exponent", given.get("hinge_slope", [0.0, 0.0]))[s]
    return twin.discount(kind, late, a, given.get("hinge_after", [0.0, 0.0])[s])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sends", ["model", "increment"])
def test_fedasync_one_by_one(kind: str, sends: str) -> None:
    """40 arrivals of stale models; every device starts anew from what its arrival made."""
    alpha, rho = [0.6, 0.9], [0.5, 3.0]
    fields = {"learning_rate": RATES, "mixing": alpha, "rho": rho, **KINDS[kind]}
    ours = Slots("fedasync", {"staleness": kind, "sends": sends}, **fields)
    x = [ours.model(s) for s in range(2)]
    held: dict[tuple[int, int], tuple[Params, Params, int]] = {}

    def begin(who: list[tuple[int, int]], t: int) -> None:
        losses = ours.begin(who, t)
        for (s, k), loss in zip(sorted(who), losses.tolist(), strict=True):
            new, mean = twin.fedasync_worker(x[s], ours.batches(s, k, t), RATES[s], rho[s])
            held[s, k] = (x[s], new, t)
            assert loss == pytest.approx(mean, rel=1e-12)

    begin([(s, k) for s in range(2) for k in range(5)], 0)
    seen = set()
    for t, who in enumerate(arrivals(40), 1):
        late = ours.slot(who)
        for (s, k), d in zip(who, late, strict=True):
            x_tau, new, tau = held.pop((s, k))
            assert d == t - 1 - tau
            seen.add(d)
            a = alpha[s] * of(kind, s, d)
            if sends == "model":
                x[s] = twin.mixed(x[s], new, a)
            else:
                x[s] = plus(x[s], plus(new, x_tau, -1.0), a)
            close(ours.model(s), x[s])
        begin(who, t)
    assert min(seen) == 0
    assert max(seen) > 6


def test_fedasync_together_is_the_mean_of_the_papers_steps() -> None:
    """Several devices in a slot: the mean under data shares of (1 - a_k) x + a_k x_k."""
    ours = Slots("fedasync", {}, learning_rate=RATES, mixing=[0.6, 0.9])
    everybody = [(s, k) for s in range(2) for k in range(5)]
    held = {key: (0, ours.model(key[0])) for key in everybody}
    ours.begin(everybody, 0)
    for t, who in enumerate(arrivals(15, 4), 1):
        x = [ours.model(s) for s in range(2)]
        ours.slot(who)
        for s in range(2):
            there = [k for trial, k in who if trial == s]
            share = np.array([SIZES[s][k] for k in there], float)
            share /= share.sum()
            total = [0.0 * a for a in x[s]]
            for k, w in zip(there, share, strict=True):
                tau, start = held[s, k]
                new, _ = twin.fedasync_worker(start, ours.batches(s, k, tau), RATES[s], 0.005)
                a = [0.6, 0.9][s] * twin.discount("polynomial", t - 1 - tau, 0.5)
                total = plus(total, twin.mixed(x[s], new, a), float(w))
            close(ours.model(s), total)
        ours.begin(who, t)
        held |= {key: (t, ours.model(key[0])) for key in who}


def test_staleness_functions_by_hand() -> None:
    """At 0, 3, 4, 5 and 8 steps: (1 + d)^-1/2, and 1 / (10 (d - 4) + 1) beyond 4."""
    late = torch.tensor([0, 3, 4, 5, 8])
    zeros = torch.zeros_like(late)
    cohort = replace(everyone(torch.full((1, 5), 0.2, dtype=F64)), staleness=late, trial=zeros)
    by_hand = {
        "constant": [1.0] * 5,
        "polynomial": [1.0, 0.5, 5**-0.5, 6**-0.5, 1 / 3],
        "hinge": [1.0, 1.0, 1.0, 1 / 11, 1 / 41],
    }
    config = registry.settings("algorithm", "fedasync")
    for kind, expected in by_hand.items():
        made = config.model_validate({"staleness": kind})
        method = registry.component("algorithm", "fedasync")(made, MODEL, 5)
        hyper = {n: torch.tensor([v], dtype=F64) for n, v in made if type(v) is float}
        method.init(Streams([5], [0], dtype=F64), hyper)
        weight = method.row_weights(cohort)
        np.testing.assert_allclose(weight, 0.2 * np.array(expected), rtol=1e-12)
        assert torch.equal(method.row_weights(cohort), weight)
    buff = Slots("fedbuff")
    weights = buff.method.row_weights(cohort)
    np.testing.assert_allclose(weights, by_hand["polynomial"], rtol=1e-12)


def test_mixing_by_hand() -> None:
    """x = 1, two equal devices with x_1 = 3, d = 0 and x_2 = -1, d = 3: s = 1 and 1/2, alpha 0.8.
    The received mean is (3 - 0.5) / 1.5 = 5/3, a = 0.8 x 3/4, and x = 1 + 0.6 x 2/3 = 1.4; with
    the second known to be lost, a = 0.8 and x = 2.6."""
    ours = Slots("fedasync", {}, mixing=[0.8, 0.8])
    cohort = replace(
        ours.all.take(torch.tensor([0, 1])),
        staleness=torch.tensor([0, 3]),
        weight=torch.tensor([0.5, 0.5], dtype=F64),
        counts=(2, 0),
    )
    cohort = replace(cohort, weight=ours.method.row_weights(cohort))
    one = torch.ones(2, 1, dtype=F64)
    count = torch.tensor([1.0, 0.0], dtype=F64)
    for mean, came, x in ((5 / 3, None, 1.4), (3.0, torch.tensor([True, False]), 2.6)):
        known = None if came is None else (came,)
        received = Received(({"model": mean * one},), (count,), None, count > 0, known)
        got = ours.method.combine({"model": one}, received, cohort, 0, ours.hyper, ours.streams)
        assert got["model"][0].item() == pytest.approx(x)
        assert got["model"][1].item() == 1.0


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("most", [1, 3])
def test_fedbuff_against_the_twin(momentum: float, most: int) -> None:
    """One by one into buffers of 3 and 4; and slots of 1 to 3 devices, where the twin takes the
    mean over all that have come once it is full. Staleness counts steps."""
    size, rate = [3, 4], [1.0, 0.6]
    ours = Slots(
        "fedbuff",
        {},
        learning_rate=RATES,
        server_rate=rate,
        buffer=size,
        momentum=[momentum, momentum],
    )
    servers = [twin.FedBuffServer(ours.model(s), size[s], rate[s], momentum) for s in range(2)]
    held: dict[tuple[int, int], tuple[Params, int]] = {}

    def begin(who: list[tuple[int, int]], t: int) -> None:
        losses = ours.begin(who, t)
        for (s, k), loss in zip(sorted(who), losses.tolist(), strict=True):
            delta, mean = twin.fedbuff_client(servers[s].w, ours.batches(s, k, t), RATES[s])
            held[s, k] = (delta, servers[s].steps)
            assert loss == pytest.approx(mean, rel=1e-12)

    begin([(s, k) for s in range(2) for k in range(5)], 0)
    seen = set()
    for t, who in enumerate(arrivals(40, most), 1):
        late = ours.slot(who)
        for s in range(2):
            there = [k for trial, k in who if trial == s]
            one = servers[s]
            one.size = max(size[s], len(one.buffer) + len(there))
            now = one.steps
            for k in there:
                delta, began = held.pop((s, k))
                assert late[who.index((s, k))] == now - began
                seen.add(now - began)
                one.receive(delta, now - began)
            close(ours.model(s), one.w)
            assert ours.server["came"][s] == len(one.buffer)
            assert ours.server["steps"][s] == one.steps
        begin(who, t)
    assert min(seen) == 0
    assert max(seen) >= 2


def buffered(came: Tensor | None, count: float, late: list[int], size: int = 10) -> Blocks:
    """The server of one trial, x = 1, after a slot of four devices that received the mean 2."""
    ours = Slots("fedbuff", {}, buffer=[size, size])
    cohort = ours.all.take(torch.arange(4))
    cohort = replace(cohort, staleness=torch.tensor(late))
    cohort = replace(cohort, weight=ours.method.row_weights(cohort))
    one = torch.ones(2, 1, dtype=F64)
    server = {
        "model": one,
        "buffer": 0 * one,
        "velocity": 0 * one,
        "came": torch.zeros(2, dtype=torch.int64),
        "steps": torch.zeros(2, dtype=torch.int64),
    }
    arrived = torch.tensor([count, 0.0], dtype=F64)
    known = None if came is None else (came,)
    received = Received(({"model": 2 * one},), (arrived,), None, arrived > 0, known)
    out: Blocks = ours.method.combine(server, received, cohort, 0, ours.hyper, ours.streams)
    assert out["came"][1] == 0
    assert out["steps"][1] == 0
    return {name: block[0] for name, block in out.items()}


def test_fedbuff_by_hand() -> None:
    """Three of four equally fresh devices were heard: the sum is 2 x 3. One of staleness 3 among
    them weighs 1/2: the sum of s is 3.5, and the step 2 x 3.5 / 4. Known rows are counted: one of
    staleness 99, s = 1/10, of four, where its share of the weight alone would round to none."""
    got = buffered(None, 0.75 - 1e-9, [0, 0, 0, 0])
    assert got["came"] == 3
    assert got["buffer"].item() == pytest.approx(6.0)
    assert got["model"].item() == 1.0
    got = buffered(None, 1.0 - 1e-9, [3, 0, 0, 0], 4)
    assert got["came"] == 0
    assert got["steps"] == 1
    assert got["buffer"].item() == 0.0
    assert got["model"].item() == pytest.approx(1 + 2 * 3.5 / 4)
    heard = torch.tensor([True, False, False, False])
    got = buffered(heard, 0.1 / 3.1, [99, 0, 0, 0])
    assert got["came"] == 1
    assert got["buffer"].item() == pytest.approx(0.2)


def test_a_slot_with_more_than_are_missing_steps_once() -> None:
    """Four devices into a buffer of one: one step, of their mean."""
    got = buffered(None, 1.0, [0, 0, 0, 0], 1)
    assert got["steps"] == 1
    assert got["model"].item() == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("name", "settings", "fields"),
    [
        ("fedasync", {"sends": "increment"}, {"mixing": [1.0, 1.0], "rho": [0.0, 0.0]}),
        ("fedasync", {"sends": "model"}, {"mixing": [1.0, 1.0], "rho": [0.0, 0.0]}),
        ("fedbuff", {}, {"buffer": [5, 5]}),
    ],
    ids=["fedasync-increment", "fedasync-model", "fedbuff"],
)
def test_all_at_once_is_fedavg(name: str, settings: dict[str, Any], fields: dict[str, Any]) -> None:
    """Rounds of everybody, without staleness; fedbuff's devices count alike, so theirs are of one
    size."""
    sizes = [[8] * 5, [8] * 5] if name == "fedbuff" else SIZES
    one = Slots(name, settings, sizes, learning_rate=RATES, **fields)
    config = registry.settings("algorithm", "fedavg")()
    other = registry.component("algorithm", "fedavg")(config, MODEL, 5)
    hyper = {
        "learning_rate": torch.tensor(RATES, dtype=F64),
        "decay": torch.zeros(2, dtype=F64),
        "server_learning_rate": torch.ones(2, dtype=F64),
    }
    server, _ = other.init(one.streams, hyper)
    everybody = [(s, k) for s in range(2) for k in range(5)]
    for t in range(3):
        one.begin(everybody, t)
        assert one.slot(everybody) == [0] * 10
        rows = other.broadcast(server, one.all).rows(one.all, 0, 10)
        _, payload, _ = other.local(
            rows, {}, one.all, one.data.work(t, one.all), hyper, one.streams
        )
        server = other.combine(server, exact(payload, one.all), one.all, t, hyper, one.streams)
        torch.testing.assert_close(one.server["model"], server["model"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("transport", ["digital", "over_the_air"])
@pytest.mark.parametrize("name", ["fedasync", "fedbuff"])
def test_in_the_engine(name: str, transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices of unlike speeds for themselves: staleness comes up, and fedbuff's steps are its
    arrivals over the buffer."""
    keys: dict[str, Any] = {
        "algorithm": {"name": name, "learning_rate": 0.3},
        "transport": transport,
        "channel": {"name": "awgn", "snr_db": 30.0},
        "devices.count": 6,
        "devices.protocol": "asynchronous",
        "devices.compute": {"name": "lognormal"},
        "engine.dtype": "float64",
    }
    if name == "fedbuff":
        keys["algorithm"]["buffer"] = 3
    one, cohorts = engine(keys), []
    combine = one.combine

    def told(received: Received, cohort: Cohort, t: int) -> None:
        cohorts.append(cohort)
        combine(received, cohort, t)

    monkeypatch.setattr(one, "combine", told)
    run(one, 20)
    assert {cohort.counts for cohort in cohorts} == {(1, 1, 1)}
    late = torch.stack([cohort.staleness for cohort in cohorts[10:]])
    assert late.ge(1).all()
    assert late.gt(2).any() == (name == "fedasync")
    weight = torch.stack([cohort.weight for cohort in cohorts[10:]])
    if name == "fedbuff":
        torch.testing.assert_close(weight, (1.0 + late.double()).rsqrt())
    assert one.server["model"].isfinite().all()
    if name == "fedbuff":
        assert one.server["steps"].tolist() == [6] * 3
        assert one.server["came"].tolist() == [2] * 3


def test_refusals() -> None:
    with pytest.raises(ScenarioError, match="learning_rate times rho must be below 1"):
        engine({"algorithm": {"name": "fedasync", "learning_rate": 2.0, "rho": 0.6}})
    with pytest.raises(ScenarioError, match="server"):
        engine({"algorithm": "fedbuff", "server": "momentum"})
