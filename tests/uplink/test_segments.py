"""Where a group is cut, and what its segments sum to, by hand."""

from __future__ import annotations

import pytest
import torch
from support.uplink_steps import F64, close, two

from otafl.core.contracts import Group
from otafl.uplink.groups import compute_means, make_signal
from otafl.uplink.signal import Uses, compute_energies, cut, sum_segments

pytestmark = pytest.mark.exact

X = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 0.0, -1.0, 0.0, 2.0]], dtype=F64)
SENT = make_signal(Group({"a": X[:, :2], "b": X[:, 2:]}), two())


def test_a_group_is_cut_at_cells_and_at_stretches() -> None:
    """Channel uses 3 .. 7 of the slot, whose cells end after 3, 6 and 9: cuts after 3 of the group,
    and after its first tensor, of two numbers."""
    segments = cut(SENT, Uses(3, 5), [3, 6, 9], blockwise=True, quadrature=False)
    assert segments.bounds == ((0, 2), (2, 3), (3, 5))
    assert segments.cells == (1, 1, 2)
    assert segments.scopes == (0, 1, 1)
    assert segments.lengths == (2, 1, 2)
    values = torch.tensor([[1.0, 2.0, 4.0]])
    assert segments.sum_over_scopes(values).tolist() == [[1.0, 6.0, 6.0]]
    assert segments.expand(values, 5).tolist() == [[1.0, 1.0, 2.0, 4.0, 4.0]]
    close(compute_energies(SENT, segments), [[5.0, 9.0, 41.0], [1.0, 1.0, 4.0]])
    means = compute_means(SENT, segments)
    close(means, [[1.5, 4.0, 4.0], [0.5, 1 / 3, 1 / 3]])


def test_two_quadratures_share_channel_uses() -> None:
    """Five numbers on three channel uses, of which the last has one; blocks of two uses."""
    segments = cut(SENT, Uses(0, 3), [2, 4], blockwise=False, quadrature=True)
    assert segments.bounds == ((0, 2), (2, 3))
    assert (segments.symbols, segments.even) == (3, 2)
    assert [part.shape[1] for part in segments.parts(X)] == [3, 2]
    close(compute_energies(SENT, segments), [[1 + 4 + 16 + 25, 9], [1 + 4, 1]])
    assert segments.expand(torch.tensor([[7.0, 8.0]]), 5).tolist() == [[7.0, 7.0, 8.0, 7.0, 7.0]]


def test_sums_have_the_coefficients_of_their_segment() -> None:
    segments = cut(SENT, Uses(0, 5), [3], blockwise=False, quadrature=False)
    coefficient = torch.tensor([[[1.0], [10.0]], [[2.0], [0.0]]], dtype=F64)
    total = sum_segments(SENT, X, coefficient, segments)
    assert total.tolist() == [[[3.0, 2.0, 1.0, 40.0, 50.0]]]


def test_many_even_segments_are_summed_as_few_are() -> None:
    """Twenty segments of two channel uses and a last one of one, at once and one by one."""
    x = torch.arange(82, dtype=F64).view(2, 41)
    sent = make_signal(Group({"a": x}), two())
    segments = cut(sent, Uses(0, 41), list(range(2, 43, 2)), blockwise=False, quadrature=False)
    assert (len(segments.bounds), segments.even) == (21, 2)
    coefficient = torch.arange(42, dtype=F64).view(2, 21, 1)
    expected = (x * coefficient[:, :, 0].repeat_interleave(2, 1)[:, :41]).sum(0)
    torch.testing.assert_close(sum_segments(sent, x, coefficient, segments)[0, 0], expected)
    energy = torch.nn.functional.pad(x, (0, 1)).square().view(2, 21, 2).sum(2)
    torch.testing.assert_close(compute_energies(sent, segments), energy)
