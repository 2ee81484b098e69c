"""FedAMP, FedFomo and FedPAC against their looped twins: two rounds of two trials that differ in
their settings, devices of unequal shares, some absent, one whose payload is lost in each round.

Mutations that must fail: FedAMP: weights from the old models, own weight left out of the mixture,
sigma or attention of one trial for all, the diagonal not excluded, the solver started at u, one
gradient step a minibatch, the pull towards the broadcast of the round before, cosine of
unnormalised models. FedFomo: gains not divided by the distance, negative ones kept, not normalised,
the baseline's training kept, the trained model no candidate, base not renewed, affinity overwritten
or of another device, reports of lost payloads counted. FedPAC: head trained after the extractor, on
its minibatches, with the old one; the pull on unknown classes or without 1/d; statistics after
training; centroids before it, unweighted, of lost payloads; variance not divided by n; equal head
weights; absent devices in the mixture; heads of lost devices renewed. All: lost rows kept as zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from twins import exchange as twin
from support.exchange_bench import (
    LOST,
    SIZES,
    WHO,
    WIDTHS,
    Bench,
    K,
    S,
    came_of,
    close,
    cohort_of,
    prefixed,
    vector,
)
from twins.network import Array, Minibatch
from twins.setting import minibatch, mlp

from otafl.algorithms.config_exchange import FedAMPConfig, FedFomoConfig, FedPACConfig
from otafl.algorithms.fedamp import FedAMP
from otafl.algorithms.fedfomo import FedFomo, HeldOut
from otafl.algorithms.fedpac import FedPAC
from otafl.core.contracts import Cohort

AMP = {
    "learning_rate": [0.1, 0.05],
    "penalty": [2.0, 5.0],
    "sigma": [0.5, 2.0],
    "attention": [1.0, 0.6],
    "cosine_scale": [2.0, 5.0],
    "self_weight": [0.5, 0.2],
}
FOMO = {"learning_rate": [0.3, 0.1], "explore": [0.3, 0.5], "explore_decay": [0.1, 0.0]}
PAC = {
    "learning_rate": [0.2, 0.1],
    "server_learning_rate": [1.0, 0.7],
    "personal_learning_rate": [0.3, 0.1],
    "penalty": [1.0, 4.0],
}


def rows_of(cohort: Cohort, s: int) -> dict[int, int]:
    """Device -> row of a trial."""
    pairs = zip(cohort.trial.tolist(), cohort.device.tolist(), strict=True)
    return {k: row for row, (trial, k) in enumerate(pairs) if trial == s}


@pytest.mark.parametrize("weights", ["kernel", "cosine"])
def test_fedamp(weights: Any) -> None:
    bench = Bench(FedAMP, FedAMPConfig(weights=weights, prox_steps=3), mlp(WIDTHS), AMP)
    known = [[row.numpy() for row in models] for models in bench.server["models"]]
    w = [list(models) for models in known]
    for t, (who, lost) in enumerate(zip(WHO, LOST, strict=True)):
        cohort = cohort_of(who)
        came = came_of(cohort, lost)
        batches = bench.batches(cohort, t)
        bench.local(cohort, t)
        bench.combine(cohort, t, came)
        for s in range(S):
            setting = {name: values[s] for name, values in AMP.items()}
            if weights == "kernel":
                alpha = setting["attention"] * setting["sigma"] / K
                xi = twin.attention(known[s], alpha, setting["sigma"])
            else:
                xi = twin.cosine_attention(
                    known[s], setting["cosine_scale"], setting["self_weight"]
                )
            cloud = [sum((x * m for x, m in zip(row, known[s], strict=True)), 0.0) for row in xi]
            for k, row in rows_of(cohort, s).items():
                w[s][k], loss = twin.fedamp_device(
                    w[s][k],
                    np.asarray(cloud[k]),
                    WIDTHS,
                    batches[row],
                    setting["learning_rate"],
                    setting["penalty"],
                    3,
                )
                close(bench.loss[row], np.array(loss))
                close(bench.sent[0].blocks["model"][row], w[s][k])
                if came[row]:
                    known[s][k] = w[s][k]
            for k in range(K):
                close(prefixed(bench, "personal", s, k), w[s][k])
                close(bench.server["models"][s, k], known[s][k])


@pytest.mark.parametrize("baseline", ["last", "current"])
def test_fedfomo(baseline: Any) -> None:
    config = FedFomoConfig(models=2, baseline=baseline, validation=0.25)
    bench = Bench(FedFomo, config, mlp(WIDTHS), FOMO)
    known = [[row.numpy() for row in models] for models in bench.server["models"]]
    trained = [list(models) for models in known]
    base = [list(models) for models in known]
    affinity = np.zeros((S, K, K))
    improved = 0
    for t, (who, lost) in enumerate(zip(WHO * 2, LOST * 2, strict=True)):
        cohort = cohort_of(who)
        came = came_of(cohort, lost)
        batches = training_batches(bench, cohort, t)
        offers = bench.server["offer"].clone()
        bench.local(cohort, t)
        bench.combine(cohort, t, came)
        for s in range(S):
            before = list(known[s])
            for k, row in rows_of(cohort, s).items():
                whose = offers[s, k].tolist()
                assert len({*whose, k}) == 3
                candidates = [before[j] for j in whose]
                if baseline == "last":
                    candidates.append(trained[s][k])
                else:
                    base[s][k] = trained[s][k]
                if SIZES[s][k] * 0.25 < 1:  # too few to validate on
                    mixed, gains = base[s][k], np.zeros(len(candidates))
                else:
                    mixed, gains = twin.fomo_mix(
                        base[s][k], candidates, WIDTHS, validation(bench, cohort, t, row)
                    )
                improved += int((gains[:2] > 0).any())
                base[s][k] = mixed
                trained[s][k], loss = twin.sgd(
                    mixed, WIDTHS, batches[row], FOMO["learning_rate"][s]
                )
                close(bench.loss[row], np.array(loss))
                close(bench.sent[1].blocks["gain"][row], gains[:2])
                if came[row]:
                    known[s][k] = trained[s][k]
                    affinity[s, k, whose] += gains[:2]
            for k in range(K):
                close(prefixed(bench, "personal", s, k), trained[s][k])
                if baseline == "last":
                    close(prefixed(bench, "base", s, k), base[s][k])
                close(bench.server["models"][s, k], known[s][k])
        close(bench.server["affinity"], affinity)
        fresh = bench.method.offer(bench.server["affinity"], t + 1, bench.hyper, bench.streams)
        for s in range(S):
            reported = {k for k, row in rows_of(cohort, s).items() if came[row]}
            for k in range(K):  # who did not report is told the same devices again
                expected = fresh if k in reported else offers
                assert torch.equal(bench.server["offer"][s, k], expected[s, k])
    assert improved > 4


def training_batches(bench: Bench, cohort: Cohort, t: int) -> list[list[Minibatch]]:
    held = HeldOut(bench.work(cohort, t).full(), 0.25, 4)
    each = []
    for step in range(bench.steps):
        uniform = bench.streams.device_uniform(
            "fedfomo/minibatch", (t << 32) + step, cohort.trial, cohort.device, (4,)
        )
        each.append(held.minibatch(uniform))
    return [[minibatch(b, row) for b in each] for row in range(cohort.size)]


def everything(bench: Bench, cohort: Cohort, t: int, row: int) -> Minibatch:
    """All samples of a device, without padding."""
    whole = minibatch(bench.work(cohort, t).full(), row)
    held = whole.weight > 0
    return Minibatch(whole.x[held], whole.y[held], whole.weight[held])


def validation(bench: Bench, cohort: Cohort, t: int, row: int) -> Minibatch:
    """Every fourth sample."""
    whole = everything(bench, cohort, t, row)
    x, y = whole.x[3::4], whole.y[3::4]
    return Minibatch(x, y, np.full(len(y), 1.0 / len(y)))


def test_fedpac() -> None:
    model = mlp(WIDTHS)
    bench = Bench(FedPAC, FedPACConfig(head_steps=3), model, PAC)
    personal = {name: bench.state(f"personal.{name}") for name in model.shapes}
    shared = [twin.split(vector(personal, model, s, 0), WIDTHS)[0] for s in range(S)]
    head = [[row.numpy() for row in heads] for heads in bench.server["head"]]
    centroid: list[list[Array | None]] = [[None] * WIDTHS[-1] for _ in range(S)]
    for t, (who, lost) in enumerate(zip(WHO, LOST, strict=True)):
        cohort = cohort_of(who)
        came = came_of(cohort, lost)
        batches = bench.batches(cohort, t)
        heads = [bench.batches(cohort, t, draw) for draw in (1, 2)]
        bench.local(cohort, t)
        bench.combine(cohort, t, came)
        for s in range(S):
            rate, server_rate, head_rate, penalty = (values[s] for values in PAC.values())
            told: dict[int, twin.Told] = {}
            for k, row in rows_of(cohort, s).items():
                one, loss = twin.pac_device(
                    shared[s],
                    head[s][k],
                    centroid[s],
                    WIDTHS,
                    everything(bench, cohort, t, row),
                    (heads[0][row] + heads[1][row])[:3],
                    batches[row],
                    rate,
                    head_rate,
                    penalty,
                )
                close(bench.loss[row], np.array(loss))
                close(prefixed(bench, "personal", s, k), np.concatenate([one.body, one.head]))
                if came[row]:
                    told[k] = one
            heard = list(told.values())
            samples = sum(SIZES[s][k] for k in told)
            mean = sum(SIZES[s][k] / samples * one.body for k, one in told.items())
            shared[s] = shared[s] + server_rate * (mean - shared[s])
            for place, k in enumerate(told):
                weights = twin.head_weights(heard, place)
                head[s][k] = sum(a * one.head for a, one in zip(weights, heard, strict=True))
            centroid[s] = twin.pac_server(heard, centroid[s])
            close(bench.server["model"][s], shared[s])
            for k in range(K):
                close(bench.server["head"][s, k], head[s][k], 1e-9)
            for c, known in enumerate(centroid[s]):
                assert bool(bench.server["known"][s, c]) == (known is not None)
                if known is not None:
                    close(bench.server["centroid"][s, c], known, 1e-10)
