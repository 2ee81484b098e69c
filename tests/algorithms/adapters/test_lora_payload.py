"""Power and known coordinates of the groups in which LoRA sends its factors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from otafl.algorithms.adapters.lora_factors import compute_power_factors

pytestmark = pytest.mark.exact


def test_power_factors() -> None:
    """Groups of 12 and 4 coordinates with norms 3 and 1."""
    first, second = torch.zeros(1, 12), torch.zeros(1, 4)
    first[0, 0], second[0, 0] = 3.0, 1.0
    parts = [{"A.w": first}, {"B.w": second}]
    assert compute_power_factors(parts, "symbol") == [None, None]
    for split, share in (("equal", 0.5), ("norm", 0.9), ("laser", 0.75)):
        found = [float(one) for one in compute_power_factors(parts, split) if one is not None]
        np.testing.assert_allclose(found, [share * 16 / 12, (1 - share) * 16 / 4], rtol=1e-6)
        assert found[0] * 12 + found[1] * 4 == pytest.approx(16)  # the energy of the slot
    zeros = [{"A.w": 0.0 * first}, {"B.w": 0.0 * second}]
    found = [float(one) for one in compute_power_factors(zeros, "norm") if one is not None]
    assert found == pytest.approx([0.5 * 16 / 12, 0.5 * 16 / 4])
