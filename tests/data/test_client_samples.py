"""Devices' own samples. Fails if the majority class is taken over all devices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from otafl.data.client_samples import ClientSamples

pytestmark = pytest.mark.exact


def samples() -> ClientSamples:
    """Two trials of two devices, with 1, 3, 2 and 4 of ten samples."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, 2, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (10,), generator=generator)
    parts = [[np.array([0]), np.array([1, 2, 3])], [np.array([4, 5]), np.array([6, 7, 8, 9])]]
    return ClientSamples.from_parts(x, y, parts, 3)


def test_together_is_the_union() -> None:
    whole = samples().pool_devices()
    assert whole.count.tolist() == [4, 4, 6, 6]
    assert whole.index[0, :4].tolist() == [0, 1, 2, 3]
    assert sorted(whole.index[3].tolist()) == [4, 5, 6, 7, 8, 9]


def test_majority() -> None:
    own = samples()
    counts = own.count_classes()
    by_hand = [
        (counts[0].max() + counts[1].max()) / 4,
        (counts[2].max() + counts[3].max()) / 6,
    ]
    np.testing.assert_allclose(own.compute_majority_share(), by_hand)


def test_a_device_guesses_among_its_own_classes() -> None:
    """With 1 and 3 samples of one and two classes, and 2 and 3 of two and three."""
    y = torch.tensor([0, 0, 1, 1, 0, 1, 0, 1, 2])
    parts = [[np.array([0]), np.array([1, 2, 3])], [np.array([4, 5]), np.array([6, 7, 8])]]
    own = ClientSamples.from_parts(torch.zeros(9, 2), y, parts, 3)
    by_hand = [(1 * 1 + 3 / 2) / 4, (2 / 2 + 3 / 3) / 5]
    np.testing.assert_allclose(own.compute_guess_accuracy(), by_hand)
