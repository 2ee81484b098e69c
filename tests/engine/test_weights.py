"""How devices weigh in the server's mean."""

from __future__ import annotations

import pytest
import torch
from contract.small import engine, prepare_first_round

pytestmark = pytest.mark.exact

UNEQUAL = {
    "data.partition": {"name": "dirichlet", "alpha": 0.3},
    "transport": "ideal",
    "trials": 2,
    "training.batch_size": 2,
}


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_the_mean_is_weighted_as_asked(weights: str) -> None:
    """After a round the server has gone by the weighted mean of what devices send."""
    one = engine({**UNEQUAL, "training.weights": weights})
    broadcast, cohort = prepare_first_round(one)
    payload, _ = one.training.train_cohort(broadcast, cohort, 0)
    sent = payload[0].tensors["model"].unflatten(0, (2, -1)).clone()
    held = one.parts.samples.sample_share
    assert not torch.equal(held, held[:, :1].expand_as(held))
    share = held if weights == "samples" else torch.ones_like(held)
    hand = torch.einsum("sk,skp->sp", share / share.sum(1, keepdim=True), sent)
    start = one.server["model"].clone()
    one.run_round(0)
    torch.testing.assert_close(one.server["model"] - start, hand, rtol=0, atol=1e-5)
