"""An arrival cut to those who heard it."""

from __future__ import annotations

import pytest
import torch
from support.broadcasts import (
    FOUR,
    get_seconds,
    send,
)

from otafl.core.contracts import Broadcast

pytestmark = pytest.mark.exact


def test_taken() -> None:
    keep = torch.tensor([True, False, True, True])
    rows = FOUR.take(keep.nonzero().squeeze(1))
    own = Broadcast(
        {"a": torch.arange(8.0).view(4, 2)},
        per_device=True,
        coordinates_per_row=torch.tensor([1, 2, 1, 2]),
    )
    whole = send(broadcast=own)
    arrival = whole.select_rows(keep)
    assert arrival.delivered_mask is None
    assert arrival.expand_rows(rows, 1, 3).tensors["a"].tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert arrival.sent.coordinates_per_row is not None
    assert arrival.sent.coordinates_per_row.tolist() == [1, 1, 2]
    assert get_seconds(arrival).tolist() == get_seconds(whole)[[0, 2, 3]].tolist()
    assert arrival.seconds is whole.seconds
    assert arrival.bits is whole.bits
