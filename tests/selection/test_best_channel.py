"""The best channels, worked by hand; and what they gain under Rayleigh fading."""

from __future__ import annotations

import pytest
import torch
from support.selections import ALL, K, S, make_cohort, make_selection, make_state, to_sets


@pytest.mark.exact
def test_best_channel() -> None:
    """By gain times mean |h|^2 over antennas and groups; ties go to the lower number."""
    power = torch.tensor([[3.0, 1.0, 2.0, 3.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    made = make_selection("best_channel")
    assert to_sets(made.select_devices(ALL, 2, 0, make_state(power))) == [[0, 3], [3, 4]]
    near = torch.tensor([1.0, 10.0, 1.0, 1.0, 0.1])
    assert to_sets(made.select_devices(ALL, 2, 0, make_state(power, near))) == [[0, 1], [1, 3]]
    free = ALL.copy()
    free[:, 3] = False
    assert to_sets(made.select_devices(free, 2, 0, make_state(power))) == [[0, 4], [2, 4]]
    cells = torch.ones(S, K, 2, 1, 3)
    cells[:, 1, 1, 0, 2] = 9.0
    cells[:, 4, 0, 0, 0] = 8.0
    assert to_sets(made.select_devices(ALL, 2, 0, make_state(cells))) == [[1, 4], [1, 4]]


@pytest.mark.exact
def test_best_channel_as_it_is_believed() -> None:
    believed = make_state(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 4.0, 3.0, 2.0, 1.0]])).h
    true = make_state(torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]).expand(S, -1))
    assert to_sets(make_selection("best_channel", believed).select_devices(ALL, 2, 0, true)) == [
        [3, 4],
        [0, 1],
    ]


@pytest.mark.exact
def test_pilots_of_those_who_are_not_busy() -> None:
    """Three of five are free in the first trial and all in the second; three and two are chosen."""
    made = make_selection("best_channel")
    made.setup.csi.num_pilot_symbols = 7  # type: ignore[misc]
    free = ALL.copy()
    free[0, :2] = False
    for available, expected in ((free, [0.0, 3 * 7.0]), (None, [2 * 7.0, 3 * 7.0])):
        told = made.count_overhead_symbols(available, make_cohort())
        assert told is not None
        assert told.tolist() == expected
