"""Holds FedFomo against its looped twin, its offers and its validation samples: two trials that
differ in their settings, devices of unequal shares, some absent, one whose payload is lost in each
round.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.exchange_bench import (
    LOST,
    SIZES,
    WHO,
    WIDTHS,
    Bench,
    K,
    S,
    assert_close,
    get_prefixed,
    load_full_batch,
    make_cohort,
    make_delivered_mask,
    map_rows,
)
from twins import exchange as twin
from twins.network import Minibatch
from twins.setting import minibatch, mlp

from otafl.algorithms.personal.fedfomo import FedFomo, HeldOutData
from otafl.core.contracts import Batch, Cohort
from otafl.core.rng import Streams

pytestmark = pytest.mark.exact

FOMO = {"learning_rate": [0.3, 0.1]}
SHARE = 0.25


@pytest.mark.twin
def test_fedfomo() -> None:
    bench = Bench(FedFomo.Settings(models=2, validation=SHARE), mlp(WIDTHS), FOMO)
    known = [[row.numpy() for row in models] for models in bench.server["models"]]
    trained = [list(models) for models in known]
    base = [list(models) for models in known]
    affinity = np.zeros((S, K, K))
    improved = 0
    for t, (who, lost) in enumerate(zip(WHO * 2, LOST * 2, strict=True)):
        cohort = make_cohort(who)
        came = make_delivered_mask(cohort, lost)
        batches = training_batches(bench, cohort, t)
        offers = bench.server["offer"].clone()
        bench.local(cohort, t)
        bench.combine(cohort, t, came)
        for s in range(S):
            before = list(known[s])
            for k, row in map_rows(cohort, s).items():
                whose = offers[s, k].tolist()
                assert len({*whose, k}) == 3
                candidates = [*(before[j] for j in whose), trained[s][k]]
                if SIZES[s][k] * SHARE < 1:  # too few to validate on: it trains alone
                    mixed, gains = trained[s][k], np.zeros(len(candidates))
                else:
                    mixed, gains = twin.fomo_mix(
                        base[s][k], candidates, WIDTHS, validation(bench, cohort, t, row)
                    )
                improved += int((gains[:2] > 0).any())
                base[s][k] = mixed
                trained[s][k], loss = twin.sgd(
                    mixed, WIDTHS, batches[row], FOMO["learning_rate"][s]
                )
                assert_close(bench.loss[row], np.array(loss))
                assert_close(bench.sent[1].tensors["gain"][row], gains[:2])
                if came[row]:
                    known[s][k] = trained[s][k]
                    affinity[s, k, whose] += gains[:2]
            for k in range(K):
                assert_close(get_prefixed(bench, "personal", s, k), trained[s][k])
                assert_close(get_prefixed(bench, "base", s, k), base[s][k])
                assert_close(bench.server["models"][s, k], known[s][k])
        assert_close(bench.server["affinity"], affinity)
        fresh = bench.method.offer(bench.server["affinity"], t + 1, bench.streams)
        for s in range(S):
            reported = {k for k, row in map_rows(cohort, s).items() if came[row]}
            for k in range(K):  # who did not report is told the same devices again
                expected = fresh if k in reported else offers
                assert torch.equal(bench.server["offer"][s, k], expected[s, k])
    assert improved > 4


def training_batches(bench: Bench, cohort: Cohort, t: int) -> list[list[Minibatch]]:
    held = HeldOutData(bench.select_local_data(cohort, t).load_full_batch(), SHARE, 4)
    each = []
    for step in range(bench.steps):
        uniform = bench.streams.draw_device_uniform(
            "fedfomo/minibatch", (t << 32) + step, cohort.trial, cohort.device, (4,)
        )
        each.append(held.draw_minibatch(uniform))
    return [[minibatch(b, row) for b in each] for row in range(cohort.num_rows)]


def validation(bench: Bench, cohort: Cohort, t: int, row: int) -> Minibatch:
    """Take every fourth sample."""
    whole = load_full_batch(bench, cohort, t, row)
    x, y = whole.x[3::4], whole.y[3::4]
    return Minibatch(x, y, np.full(len(y), 1.0 / len(y)))


def test_offers_follow_the_affinity() -> None:
    """From round 6 on, as nothing is tried at random any more."""
    generator = torch.Generator().manual_seed(2)
    affinity = torch.randn(1, 8, 8, generator=generator, dtype=torch.float64)
    method = FedFomo(FedFomo.Settings(models=3), mlp(WIDTHS), 8)
    offer = method.offer(affinity, 6, Streams([1], [0], dtype=torch.float64))[0]
    without = affinity[0].masked_fill(torch.eye(8, dtype=torch.bool), -torch.inf)
    for k in range(8):
        assert set(offer[k].tolist()) == set(without[k].topk(3).indices.tolist())


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_validation_samples_are_spread_and_kept_out_of_training(share: float) -> None:
    """Devices have 20, 3 and 11 samples; a sample's input is its number."""
    sizes = torch.tensor([20, 3, 11])
    number = torch.arange(20).repeat(3, 1)
    weight = (number < sizes[:, None]).double() / sizes[:, None]
    full = Batch(number[:, :, None].double(), number % 4, weight)
    held = HeldOutData(full, share, 6)
    generator = torch.Generator().manual_seed(3)
    drawn: list[set[float]] = [set() for _ in sizes]
    for _ in range(60):
        batch = held.draw_minibatch(torch.rand(3, 6, generator=generator))
        assert batch.weight is not None
        torch.testing.assert_close(batch.weight.sum(1), torch.ones(3, dtype=torch.float64))
        for k in range(3):
            values = batch.x[k, batch.weight[k] > 0, 0].tolist()
            assert len(set(values)) == len(values) == min(6, sizes[k] - int(share * sizes[k]))
            drawn[k] |= set(values)
    own = held.validation
    assert own.weight is not None
    for k, size in enumerate(sizes.tolist()):
        kept = own.x[k, own.weight[k] > 0, 0].tolist()
        assert len(kept) == int(share * size)
        assert kept == [place - 1 for place in range(1, size + 1) if place % round(1 / share) == 0]
        assert drawn[k] | set(kept) == set(range(size))
        assert not drawn[k] & set(kept)
