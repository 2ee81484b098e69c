"""Holds FedBuff against its looped twin in sequences of arrivals, against numbers by hand, and in
limits in which it is federated averaging.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contract.small import engine
from support.slots import F64, RATES, Slots, assert_close, list_deliveries
from torch import Tensor
from twins import asynchronous as twin
from twins.rivals import Params, plus, sgd

from otafl.core.contracts import Received, Tensors
from otafl.scenario import ScenarioError

pytestmark = pytest.mark.exact


@pytest.mark.twin
@pytest.mark.parametrize(("momentum", "most"), [(0.0, 1), (0.7, 3)])
def test_fedbuff_against_the_twin(momentum: float, most: int) -> None:
    """Devices come one by one into buffers of 3 and 4; and in slots of 1 to 3, where the twin takes
    the mean over all that have come once it is full. Staleness counts steps."""
    size, rate = [3, 4], [1.0, 0.6]
    ours = Slots(
        "fedbuff",
        {},
        learning_rate=RATES,
        server_rate=rate,
        buffer=size,
        momentum=[momentum, momentum],
    )
    servers = [twin.FedBuffServer(ours.get_model(s), size[s], rate[s], momentum) for s in range(2)]
    held: dict[tuple[int, int], tuple[Params, int]] = {}

    def begin(who: list[tuple[int, int]], t: int) -> None:
        losses = ours.begin(who, t)
        for (s, k), loss in zip(sorted(who), losses.tolist(), strict=True):
            end, mean = sgd(servers[s].w, ours.draw_batches(s, k, t), RATES[s])
            held[s, k] = (plus(servers[s].w, end, -1.0), servers[s].steps)
            assert loss == pytest.approx(mean, rel=1e-12)

    begin([(s, k) for s in range(2) for k in range(5)], 0)
    seen = set()
    for t, who in enumerate(list_deliveries(40, most), 1):
        late = ours.run_slot(who)
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
            assert_close(ours.get_model(s), one.w)
            assert ours.server["came"][s] == len(one.buffer)
            assert ours.server["version"][s] == one.steps
        begin(who, t)
    assert min(seen) == 0
    assert max(seen) >= 2


def buffered(came: Tensor | None, count: float, late: list[int], size: int = 10) -> Tensors:
    """Return the server of one trial, x = 1, after a slot of four devices that received the mean
    2."""
    ours = Slots("fedbuff", {}, buffer=[size, size])
    cohort = ours.all.take(torch.arange(4))
    cohort = ours.reweight(replace(cohort, staleness=torch.tensor(late)))
    one = torch.ones(2, 1, dtype=F64)
    server = {
        "model": one,
        "buffer": 0 * one,
        "velocity": 0 * one,
        "came": torch.zeros(2, dtype=torch.int64),
        "version": torch.zeros(2, dtype=torch.int64),
    }
    arrived = torch.tensor([count, 0.0], dtype=F64)
    known = None if came is None else (came,)
    received = Received(({"model": 2 * one},), (arrived,), None, arrived > 0, known)
    out: Tensors = ours.method.update_server(server, received, ours.make_context(cohort))
    assert out["came"][1] == 0
    assert out["version"][1] == 0
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
    assert got["version"] == 1
    assert got["buffer"].item() == 0.0
    assert got["model"].item() == pytest.approx(1 + 2 * 3.5 / 4)
    heard = torch.tensor([True, False, False, False])
    got = buffered(heard, 0.1 / 3.1, [99, 0, 0, 0])
    assert got["came"] == 1
    assert got["buffer"].item() == pytest.approx(0.2)


def test_refuses_a_server_optimiser() -> None:
    with pytest.raises(ScenarioError, match="server"):
        engine({"algorithm": "fedbuff", "server": "momentum"})
