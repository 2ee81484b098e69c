"""Methods train alike however often they are tested: invariant 17 of pFedBreD's facts."""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import engine, equal

from otafl.evaluation.evaluation import Evaluation

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
