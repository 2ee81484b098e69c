"""The error-free downlink by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.broadcasts import (
    FOUR,
    RATE_BPS,
    make_per_device,
    make_setup,
    make_shared,
)

from otafl.downlink.downlinks import IdealDownlink

pytestmark = pytest.mark.exact


def test_ideal() -> None:
    ideal = IdealDownlink(IdealDownlink.Settings(), make_setup())
    arrival = ideal.send(make_shared(), FOUR, 0)
    rows = arrival.expand_rows(FOUR, 1, 4)
    for name, block in make_shared().tensors.items():
        assert torch.equal(rows.tensors[name], block[[0, 0, 1]])
    np.testing.assert_allclose(arrival.seconds, 13 * 32 / RATE_BPS, rtol=1e-12)
    assert arrival.bits.tolist() == [13 * 32.0] * 2
    assert ideal.send(make_per_device(), FOUR, 0).bits.tolist() == [3 * 5 * 32.0, 5 * 32.0]
