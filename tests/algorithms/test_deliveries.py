"""Parts of a round's updates that were delivered."""

from __future__ import annotations

import pytest
import torch

from otafl.algorithms.deliveries import replace_delivered
from otafl.core.contracts import Received

pytestmark = pytest.mark.exact


def test_a_trial_without_deliveries_keeps_its_old_values() -> None:
    mean, old = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[1.0, 2.0], [5.0, 6.0]])
    received = Received(({"w": mean},), (torch.tensor([0.5, 0.0]),), None, None)
    new = replace_delivered({"w": old}, received, 0)
    assert new["w"].tolist() == [[3.0, 4.0], [5.0, 6.0]]
