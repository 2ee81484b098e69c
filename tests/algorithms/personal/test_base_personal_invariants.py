"""Holds what is true of personalised methods whoever trains, whatever they are called and however
often they are tested: invariants 10, 11, 12, 13 and 17 of pFedBreD's facts, F13 of TDPFed's.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from contract.small import engine, equal

from otafl.evaluation.evaluation import Evaluation
from otafl.selection.selections import draw_subset

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("method", ["fedavg", "pfedme", "pfedbred", "per_fedavg"])
def test_a_test_leaves_no_trace(method: str) -> None:
    """Invariant 17: models fine-tuned for a test are forgotten, and the local minibatches of the
    rounds after it are what they would have been."""
    settings = {"training.fine_tune_steps": 2, "data.own_test": True}
    tested, plain = (engine({"algorithm": method, "trials": 2, **settings}) for _ in range(2))
    evaluation = Evaluation(
        tested.parts.samples, tested.parts.scenario.training, tested.parts.scenario.loss
    )
    for t in range(3):
        for one in (tested, plain):
            one.run_round(t)
        views = tested.parts.algorithm.build_views(tested.server, tested.devices.get_all())
        got = evaluation.take(views, t + 1, tested.running)
        assert np.isfinite(got["tuned_own_test_accuracy"]).all()
    equal(tested.server, plain.server)
    equal(tested.devices.get_all(), plain.devices.get_all())


def test_drawn_senders_have_the_spread_of_lemma_3() -> None:
    """Invariant 11 and F13: the mean over S of K equal devices differs from the mean over all by
    (K/S - 1)/(K - 1) times their spread, in the mean over all sets, each drawn equally often."""
    k, s, rounds = 6, 2, 3000
    one = engine({"transport": "ideal", "trials": 1, "devices.count": k})
    gradient = np.random.default_rng(0).standard_normal((k, 5))
    spread = ((gradient - gradient.mean(0)) ** 2).sum(1).mean()
    of = {
        devices: ((gradient[list(devices)].mean(0) - gradient.mean(0)) ** 2).sum()
        for devices in itertools.combinations(range(k), s)
    }
    assert np.mean(list(of.values())) == pytest.approx((k / s - 1) / (k - 1) * spread, rel=1e-12)
    cohort = one.select_cohort(None, 0)
    drawn = [
        tuple(draw_subset(cohort, s, t, one.parts.streams).nonzero()[:, 0].tolist())
        for t in range(rounds)
    ]
    counts = np.array([drawn.count(devices) for devices in of])
    assert counts.sum() == rounds
    expected = rounds / len(of)
    assert ((counts - expected) ** 2 / expected).sum() < 36.1  # chi-square, 14 degrees, 0.1 %
