"""Payloads of chunks, joined in the order of the rows."""

from __future__ import annotations

import pytest
import torch

from otafl.core.contracts import Group
from otafl.engine.update import PayloadCollector, reorder_payload

pytestmark = pytest.mark.exact

VALUES = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("counts", [(0, 2), (2, 0), (1, 1), (0, 1, 0, 1), (2,)])
def test_chunks_without_transmitters_change_nothing(counts: tuple[int, ...]) -> None:
    out = PayloadCollector(2, {(0, "x"): torch.full((2, 2), torch.nan)})
    start = 0
    for count in counts:
        out.add(count, (Group({"x": VALUES[start : start + count]}),))
        start += count
    assert torch.equal(out.payload[0].tensors["x"], VALUES)


def test_rows_move_to_their_places() -> None:
    """Rows 0, 1, 2 of the trained order are rows 2, 0, 1 of the cohort."""
    x, place = torch.tensor([[2.0], [0.0], [1.0]]), torch.tensor([2, 0, 1])
    twice = Group({"x": x[[0, 0, 2]]}, row_index=torch.tensor([0, 0, 2]))
    plain, listed = reorder_payload((Group({"x": x}), twice), place)
    assert plain.row_index is None
    assert plain.tensors["x"].ravel().tolist() == [0.0, 1.0, 2.0]
    assert listed.row_index is not None
    assert listed.row_index.tolist() == [1, 2, 2]
    assert listed.tensors["x"].ravel().tolist() == [1.0, 2.0, 2.0]
