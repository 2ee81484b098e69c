"""What policies with energy for life have in common: slots of several groups and segments."""

from __future__ import annotations

import pytest
import torch
from support.energy_slots import F64, Slots, make_budget_paced, make_slot_link
from support.power_links import perturb

pytestmark = pytest.mark.exact


def test_slots_of_nobody_are_not_counted() -> None:
    """As a trial alone would not have them; and stacked trials have budgets of their own."""
    one = make_slot_link([1.0])
    nobody = perturb(one, transmit_mask=torch.tensor([[False]]))
    with_them, without = make_budget_paced(), make_budget_paced()
    got = [float(with_them.power(x).sum()) for x in (one, nobody, nobody, one)]
    assert got == pytest.approx([1.0, 0.0, 0.0, 1.0])
    assert [float(without.power(one).sum()) for _ in range(2)] == pytest.approx([1.0, 1.0])
    queue, other = (Slots("lyapunov", v=10.0, average_db=-6.0) for _ in range(2))
    for x in (one, nobody, one):
        queue(x)
    for x in (one, one):
        other(x)
    assert torch.equal(queue.state, other.state)


@pytest.mark.parametrize("name", ["budget_paced", "lyapunov"])
def test_groups_of_a_slot_are_one_slot(name: str) -> None:
    """Two groups of six and four symbols are paced and charged as one of ten; a queue's second
    group sees what the first was charged, so V is large here."""

    def made() -> Slots:
        return (
            make_budget_paced() if name == "budget_paced" else Slots(name, v=1e9, average_db=-3.0)
        )

    whole, cut = made(), made()
    one = make_slot_link([1.0])
    parts = [perturb(one, segment_lengths=torch.tensor([x], dtype=F64)) for x in (6.0, 4.0)]
    for _ in range(3):
        together = float(whole.power(one).sum())
        assert [float(cut.power(part).sum()) for part in parts] == pytest.approx([together] * 2)
        if name == "lyapunov":
            torch.testing.assert_close(cut.state, whole.state)


@pytest.mark.parametrize("name", ["budget_paced", "lyapunov"])
def test_segments_are_charged_by_their_symbols(name: str) -> None:
    """Three segments of 2, 3 and 5 symbols and unlike channels: the charge is sum |p|^2 m times
    symbols, for a queue in slots at full power."""
    lengths = torch.tensor([2.0, 3.0, 5.0], dtype=F64)
    link = perturb(
        make_slot_link([1.0, 0.5]),
        h=torch.tensor([[1.0, 0.5], [0.3, 1.2], [2.0, 0.1]], dtype=torch.complex128)[None],
        symbol_power=torch.tensor([[1.0, 2.0], [0.5, 1.0], [3.0, 1.0]], dtype=F64)[None],
        segment_lengths=lengths,
    )
    if name == "budget_paced":
        slots = make_budget_paced()
        energy = (slots.power(link) * lengths[:, None]).sum(1)
        torch.testing.assert_close(slots.state.left, 40.0 - energy)
        assert slots.state.ahead.item() == 3.0
    else:
        slots = Slots(name, v=10.0, average_db=-20.0)
        energy = (slots.power(link) * lengths[:, None]).sum(1)
        torch.testing.assert_close(slots.state, energy / 20.0 - 0.01)
    assert (energy > 0).all()
