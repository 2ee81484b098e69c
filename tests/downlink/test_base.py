"""An arrival cut to those who heard it."""

from __future__ import annotations

import pytest
import torch
from support.lossy_broadcasts import (
    FOUR,
    TEN,
    get_seconds,
    make_setup,
    send,
)
from support.rounding import assert_agree
from torch import Tensor

from otafl.core.contracts import Broadcast, Cohort
from otafl.downlink.base import BroadcastDelivery
from otafl.downlink.downlinks import AnalogDownlink

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


def test_taken_noise() -> None:
    """What a row hears does not depend on who is left out."""
    config = AnalogDownlink.Settings(fading=True, estimator="mmse")
    made = AnalogDownlink(config, make_setup(snr_db=[10.0, 0.0]))
    whole = made.send(TEN, FOUR, 3)
    keep = torch.tensor([False, True, True, True])
    rows = FOUR.take(keep.nonzero().squeeze(1))

    def heard(arrival: BroadcastDelivery, who: Cohort) -> Tensor:
        return arrival.expand_rows(who, 0, who.num_rows).tensors["a"]

    assert_agree(heard(whole.select_rows(keep), rows), heard(whole, FOUR)[1:])
