"""The slot of a payload, by hand."""

from __future__ import annotations

import pytest
import torch
from support.uplink_steps import H, X, close, delivery, slot_of

from otafl.core.contracts import Group, TransmitLimits

pytestmark = pytest.mark.exact

BLOCKS = torch.stack([H, 3.0 * H], 1)[:, None, :, None]
"""Two coherence blocks, h and 3 h."""


def test_groups_follow_each_other_over_the_blocks() -> None:
    """Groups of two and of one number over blocks of two channel uses."""
    made = delivery(Group({"a": X}), Group({"b": X[:, :1]}), h=BLOCKS, block_symbols=2)
    slot = slot_of(made, (2, 1))
    assert slot.symbols == 3
    assert slot.cell_stops == [2, 3]
    assert [(uses.start, uses.count) for uses in slot.uses] == [(0, 2), (2, 1)]
    torch.testing.assert_close(slot.h[0, :, 0], torch.stack([H, 3.0 * H], 1))
    assert slot.h_hat is slot.h
    assert slot.budget.tolist() == [[10.0, 36.0]]


def test_pilots_are_sent_by_each_device_in_each_block() -> None:
    """Two devices, two blocks, two pilots."""
    made = delivery(h=BLOCKS, block_symbols=1)
    slot_of(made)
    assert made.report().side_symbols.tolist() == [8.0]


def test_a_symbol_of_four_channel_uses() -> None:
    """Two symbols over blocks of four channel uses end after one and two; each has the circuits'
    energy of four channel uses."""
    rows = torch.tensor([[100.0, 20.0], [3.0, 3.0]]).double()
    limits = TransmitLimits(energy_budget=rows[:1], energy_per_symbol=rows[1:])
    slot = slot_of(delivery(h=BLOCKS, block_symbols=4, limits=limits), (2,), 4)
    assert (slot.symbols, slot.uses_per_symbol, slot.cell_stops) == (8, 4, [1, 2])
    assert slot.bounds is not None
    assert slot.bounds.energy is not None
    close(slot.bounds.energy, [[76.0, 0.0]])


def test_the_gain_is_in_the_channel_as_its_root() -> None:
    made = delivery()
    made.channel.gain[:] = torch.tensor([[4.0, 0.25]])
    slot = slot_of(made)
    assert slot.h.flatten().tolist() == [2.0, 1.0j]
    assert slot.gain.tolist() == [[4.0, 0.25]]
