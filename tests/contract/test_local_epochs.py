"""Every registered method with local work in epochs, where devices take different numbers of steps:
a device trains by itself as it does among others, or the method refuses with a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contract.small import (
    ALGORITHMS,
    engine,
    over_fading,
    points,
)

from otafl.core.errors import UserError

EPOCHS: dict[str, Any] = {
    "data.partition": {"name": "dirichlet", "alpha": 0.1},
    "training.local_steps": 1,
    "training.local_epochs": 1,
    "training.batch_size": 40,
    "engine.dtype": "float64",
    "trials": 2,
}


def make_keys(algorithm: str) -> dict[str, Any]:
    return {"algorithm": algorithm, "transport": over_fading(algorithm)} | EPOCHS


def refuses(algorithm: str) -> bool:
    """Whether the method declares that its devices cannot take different numbers of steps."""
    try:
        points(make_keys(algorithm))
    except UserError as error:
        return "training.local_epochs" in str(error)
    return False


ABLE = [name for name in ALGORITHMS if not refuses(name)]


def test_others_refuse_with_a_sentence() -> None:
    for algorithm in set(ALGORITHMS) - set(ABLE):
        text = f"training.local_epochs: got 1, but algorithm '{algorithm}' .*; use training.local"
        with pytest.raises(UserError, match=text):
            engine(make_keys(algorithm))


@pytest.mark.parametrize("algorithm", ABLE)
def test_device_trains_alone_as_among_others(algorithm: str) -> None:
    one, other = engine(make_keys(algorithm)), engine(make_keys(algorithm))
    cohort = one.select_cohort(None, 0)
    steps = one.training.count_steps(cohort)
    assert steps is not None
    assert len(set(steps.tolist())) > 2
    broadcast = one.parts.algorithm.broadcast(one.server, cohort)
    payload, loss = one.training.train_cohort(broadcast, cohort, 0)
    row = int(steps.argmax())
    part = cohort.take(torch.tensor([row]))
    keep = torch.arange(cohort.num_rows) == row
    alone, own_loss = other.training.train_cohort(broadcast.select_rows(keep), part, 0)
    torch.testing.assert_close(own_loss, loss[row : row + 1], rtol=1e-9, atol=0)
    compared = 0
    for whole, group in zip(payload, alone, strict=True):
        rows = torch.arange(cohort.num_rows) if whole.row_index is None else whole.row_index
        for name, block in group.tensors.items():
            for copy, found in enumerate(whole.tensors[name][rows == row]):
                torch.testing.assert_close(block[copy], found, rtol=1e-8, atol=1e-11)
                compared += 1
    assert compared or not payload
