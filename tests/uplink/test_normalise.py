"""Scales, energies and powers of symbols, by hand."""

from __future__ import annotations

import pytest
import torch
from support.uplink_steps import X, close, delivery, on_air_of, prepare

from otafl.core.contracts import Group
from otafl.uplink.groups import compute_variation

pytestmark = pytest.mark.exact


def test_a_mean() -> None:
    """K w_k = 1/2 and 3/2; (1, 2) and (3, -3) have the energies 5 and 18."""
    _, on_air = on_air_of(delivery())
    assert torch.equal(on_air.sent.x, X)
    assert on_air.scale.tolist() == [0.5, 1.5]
    assert on_air.segments.lengths == (2,)
    close(on_air.energy, [[[5.0, 18.0]]])
    close(on_air.power, [[[2.5, 9.0]]])
    assert on_air.means is None


def test_a_sum() -> None:
    """Rows go as they are: energies 20 and 8."""
    _, on_air = on_air_of(delivery(Group({"a": X}, weighting="none")))
    assert on_air.scale.tolist() == [1.0, 1.0]
    close(on_air.power, [[[10.0, 4.0]]])


def test_two_quadratures() -> None:
    """One channel use has the energy of both."""
    _, on_air = on_air_of(delivery(), quadrature=True)
    assert on_air.segments.lengths == (1,)
    close(on_air.power, [[[5.0, 18.0]]])


def test_each_tensor_is_a_stretch() -> None:
    group = Group({"a": X[:, :1], "b": X[:, 1:]})
    _, on_air = on_air_of(delivery(group), blockwise=True)
    close(on_air.power, [[[1.0, 9.0], [4.0, 9.0]]])


def test_means_are_taken_off() -> None:
    """3 and 0; deviations (-1, 1) and (2, -2) have the energies 2/4 and 8 * 9/4."""
    _, on_air = on_air_of(delivery(), centred=True)
    assert on_air.sent.x.tolist() == [[-1.0, 1.0], [2.0, -2.0]]
    assert on_air.means is not None
    assert on_air.means.tolist() == [[3.0], [0.0]]
    close(on_air.energy, [[[0.5, 18.0]]])


def test_rows_that_know_different_parts_go_as_they_are() -> None:
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    _, on_air = on_air_of(delivery(Group({"a": X}, mask={"a": mask})), centred=True)
    assert on_air.sent.x.tolist() == [[2.0, 0.0], [2.0, -2.0]]
    assert on_air.means is None
    close(on_air.energy, [[[1.0, 18.0]]])


def test_variation_over_the_devices() -> None:
    """(1, 2) and (3, -3): energy of both 23, of their sum (4, -1) 17. The mean's power is
    (17 - 23) / 2 < 0, which counts as none; of (2, 2) and (6, 6) it is (128 - 80) / 2 = 24, and
    the variation is 40 / 24 - 1."""
    energy = torch.tensor([[5.0], [18.0]]).double()
    assert float(vary(X, energy)) > 1e20
    x = torch.tensor([[4.0, 4.0], [4.0, 4.0]]).double()
    assert float(vary(x, torch.tensor([[8.0], [72.0]]).double())) == pytest.approx(40 / 24 - 1)


def vary(x: torch.Tensor, energy: torch.Tensor) -> torch.Tensor:
    _, sent, segments, _ = prepare(delivery(Group({"a": x})))
    return compute_variation(sent, segments, sent.scale, energy)
