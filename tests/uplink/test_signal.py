"""What all transports sum: masked means, who does not send, rows of some devices."""

from __future__ import annotations

import pytest
import torch
from support.link_bench import draw_updates, make_bench, make_cohort

from otafl.core.contracts import Group
from otafl.uplink.groups import make_signal
from otafl.uplink.signal import compute_energies, compute_squared_norm, cut, sum_segments

pytestmark = pytest.mark.exact


NO_NOISE = 150.0
"""dB: the noise is then below 1e-7 of the signal, so that means can be worked by hand."""


@pytest.mark.parametrize("transport", ["ideal", "over_the_air", "digital"])
def test_masked_mean_by_hand(transport: str) -> None:
    """Three devices of widths 4, 2, 1 and weights 1/2, 1/4, 1/4; the last coordinate is nobody's.
    Coordinate 1: (1/2 x 1 + 1/4 x 2) / (3/4) = 4/3."""
    link = make_bench("ci", devices=3, snr_db=NO_NOISE, transport=transport)
    x = torch.tensor([[1.0, 1, 1, 1, 9], [2, 2, 9, 9, 9], [4, 9, 9, 9, 9]]).double()
    mask = torch.tensor([[1.0, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    group = Group({"a": x.clone(), "b": x[:, :1].clone()}, mask={"a": mask})
    received, _ = link.deliver((group,), make_cohort((3,), 3, weight=[2.0, 1.0, 1.0]))
    hand = torch.tensor([2.0, 4 / 3, 1, 1, 0]).double()
    torch.testing.assert_close(received.mean[0]["a"][0], hand, rtol=0, atol=1e-6)
    torch.testing.assert_close(received.mean[0]["b"][0], hand[:1], rtol=0, atol=1e-6)
    count = received.group_weight[0]
    assert isinstance(count, dict)
    assert count["a"][0].tolist() == [1.0, 0.75, 0.5, 0.5, 0.0]
    assert count["b"][0].tolist() == [1.0]


@pytest.mark.parametrize("transport", ["ideal", "over_the_air"])
def test_groups_of_some_rows(transport: str) -> None:
    """Rows 0, 2 and 5 of two trials of three."""
    link = make_bench("ci", (0, 1), 3, NO_NOISE, transport)
    x = draw_updates(3, 5)
    group = Group({"a": x}, row_index=torch.tensor([0, 2, 5]))
    who = make_cohort((3, 3), 3, weight=[1.0, 7.0, 3.0, 7.0, 7.0, 2.0])
    received, report = link.deliver((group,), who)
    expected = torch.stack([(1 * x[0] + 3 * x[1]) / 4, x[2]])
    torch.testing.assert_close(received.mean[0]["a"], expected, rtol=0, atol=1e-6)
    assert report.participants.tolist() == [2, 1]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_squared_norms_outside_of_single_precision(scale: float) -> None:
    """A row of zeros is beside."""
    x = torch.tensor([[3.0, -4.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    small = (scale * x).float()
    expected = scale**2 * torch.tensor([25.0, 1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(compute_squared_norm(small), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("length", [3, 500])
def test_sums_and_energies_of_short_and_long_segments(length: int) -> None:
    """Three segments of 1, 2 and 2 lengths, beside a coefficient for each symbol."""
    x = draw_updates(8, 5 * length)
    segments = cut(range(5 * length), (length, 3 * length, 5 * length))
    coefficient = draw_updates(8, 6).view(8, 3, 2)
    by_use = coefficient.repeat_interleave(torch.tensor([length, 2 * length, 2 * length]), 1)
    expected = torch.einsum("skp,skpj->sjp", x.view(2, 4, -1), by_use.view(2, 4, -1, 2))
    sent = make_signal(Group({"a": x}), make_cohort((4, 4), 4))
    torch.testing.assert_close(sum_segments(sent, x, coefficient, segments), expected)
    squares = [part.square().sum(1) for part in x.split([length, 2 * length, 2 * length], 1)]
    torch.testing.assert_close(compute_energies(x, segments), torch.stack(squares, 1))
