"""Each step of one transmission by hand, for the two devices of `support.uplink_steps`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support.uplink_steps import (
    F64,
    STREAMS,
    H,
    X,
    alignment,
    close,
    delivery,
    on_air_of,
    prepare,
    slot_of,
    two,
)

from otafl.core.contracts import Coefficients, Group, Link
from otafl.power.inversion import ChannelInversion
from otafl.receivers.base import Receiver
from otafl.uplink.coherent.over_the_air import superpose
from otafl.uplink.delivery import Delivery
from otafl.uplink.groups import compute_means, compute_variation, make_signal
from otafl.uplink.noise import draw_noise
from otafl.uplink.report import collect_coefficients
from otafl.uplink.signal import compute_energies, cut, sum_segments
from otafl.uplink.transmission import Transmission, account, receive, transmit

pytestmark = pytest.mark.exact

BLOCKS = torch.stack([H, 3.0 * H], 1)[:, None, :, None]
"""Two coherence blocks, h and 3 h."""
SILENCE = torch.zeros(1, 2, dtype=F64)
FIVE = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 0.0, -1.0, 0.0, 2.0]], dtype=F64)
SENT = make_signal(Group({"a": FIVE[:, :2], "b": FIVE[:, 2:]}), two())


def delivered(made: Delivery, on_air: Transmission) -> list[Any]:
    receive(on_air, SILENCE.clone(), SILENCE.clone(), made)
    (mask_fn,) = made.report().delivered_mask_fns
    return mask_fn().tolist()


# ---- the slot


def test_groups_follow_each_other_over_the_blocks() -> None:
    """Groups of two and of one number over blocks of two channel uses; two devices send two pilots
    in each of two blocks."""
    made = delivery(Group({"a": X}), Group({"b": X[:, :1]}), h=BLOCKS, block_symbols=2)
    slot = slot_of(made, (2, 1))
    assert (slot.symbols, slot.cell_stops) == (3, [2, 3])
    assert slot.uses == [range(2), range(2, 3)]
    torch.testing.assert_close(slot.h[0, :, 0], torch.stack([H, 3.0 * H], 1))
    assert slot.h_hat is slot.h
    assert slot.budget.tolist() == [[10.0, 36.0]]
    assert made.report().side_symbols.tolist() == [8.0]


# ---- segments


def test_a_group_is_cut_at_cells_and_at_stretches() -> None:
    """Channel uses 3 .. 7 of the slot, whose cells end after 3, 6 and 9: cuts after 3 of the group,
    and after its first tensor, of two numbers."""
    segments = cut(SENT, range(3, 8), [3, 6, 9], blockwise=True, quadrature=False)
    assert segments.bounds == ((0, 2), (2, 3), (3, 5))
    assert (segments.cells, segments.scopes) == ((1, 1, 2), (0, 1, 1))
    values = torch.tensor([[1.0, 2.0, 4.0]])
    assert segments.sum_over_scopes(values).tolist() == [[1.0, 6.0, 6.0]]
    assert segments.expand(values, 5).tolist() == [[1.0, 1.0, 2.0, 4.0, 4.0]]
    close(compute_energies(SENT, segments), [[5.0, 9.0, 41.0], [1.0, 1.0, 4.0]])
    close(compute_means(SENT, segments), [[1.5, 4.0, 4.0], [0.5, 1 / 3, 1 / 3]])
    coefficient = torch.tensor([[[1.0], [1.0], [10.0]], [[2.0], [2.0], [0.0]]], dtype=F64)
    total = sum_segments(SENT, FIVE, coefficient, segments)
    assert total.tolist() == [[[3.0, 2.0, 1.0, 40.0, 50.0]]]


def test_many_even_segments_are_summed_as_few_are() -> None:
    """Twenty segments of two channel uses and a last one of one, at once and one by one."""
    x = torch.arange(82, dtype=F64).view(2, 41)
    sent = make_signal(Group({"a": x}), two())
    segments = cut(sent, range(41), list(range(2, 43, 2)), blockwise=False, quadrature=False)
    assert (len(segments.bounds), segments.even) == (21, 2)
    coefficient = torch.arange(42, dtype=F64).view(2, 21, 1)
    expected = (x * coefficient[:, :, 0].repeat_interleave(2, 1)[:, :41]).sum(0)
    torch.testing.assert_close(sum_segments(sent, x, coefficient, segments)[0, 0], expected)
    energy = torch.nn.functional.pad(x, (0, 1)).square().view(2, 21, 2).sum(2)
    torch.testing.assert_close(compute_energies(sent, segments), energy)


# ---- powers


def test_symbol_powers() -> None:
    """K w_k = 1/2 and 3/2: (1, 2) and (3, -3) have the energies 5 and 18; of a sum the rows' own 20
    and 8; two quadratures share a channel use; of each tensor alone; and without means 3 and 0."""
    mean, blocks = Group({"a": X}), Group({"a": X[:, :1], "b": X[:, 1:]})
    power = {
        "mean": ({}, mean, [[[2.5, 9.0]]]),
        "sum": ({}, Group({"a": X}, weighting="none"), [[[10.0, 4.0]]]),
        "quadratures": ({"quadrature": True}, mean, [[[5.0, 18.0]]]),
        "tensors": ({"blockwise": True}, blocks, [[[1.0, 9.0], [4.0, 9.0]]]),
        "centred": ({"centred": True}, mean, [[[0.25, 9.0]]]),
    }
    for how, group, expected in power.values():
        _, on_air = on_air_of(delivery(group), **how)
        close(on_air.power, expected)


def test_variation_over_the_devices() -> None:
    """(1, 2) and (3, -3): energy of both 23, of their sum (4, -1) 17. The mean's power is
    (17 - 23) / 2 < 0, which counts as none; of (2, 2) and (6, 6) it is (128 - 80) / 2 = 24, and
    the variation is 40 / 24 - 1."""

    def vary(x: torch.Tensor, energy: list[list[float]]) -> float:
        _, sent, segments, _ = prepare(delivery(Group({"a": x})))
        return float(compute_variation(sent, segments, sent.scale, torch.tensor(energy).double()))

    assert vary(X, [[5.0], [18.0]]) > 1e20
    assert vary(torch.full((2, 2), 4.0).double(), [[8.0], [72.0]]) == pytest.approx(40 / 24 - 1)


class Asked(ChannelInversion):
    """Channel inversion that counts its rounds, and keeps what it was asked."""

    def compute_coefficients(self, state: Any, link: Link) -> tuple[Any, Coefficients]:
        links.append(link)
        return (state or 0) + 1, super().compute_coefficients(None, link)[1]


links: list[Link] = []


def test_what_the_policy_sees_and_sets() -> None:
    """Amplitudes sqrt(P / m) |h| are 2 and 4: eta = 4, p = 2 / h. A residual phase turns the true
    channel alone."""
    aligned, made = alignment(Asked(), residual_phase_rad=0.5), delivery()
    slot, sent, segments, _ = prepare(made)
    state, on_air = transmit(slot, sent, segments, aligned, 4)
    assert state == 5
    close(on_air.scalars.eta, [[4.0]])
    close(on_air.scalars.p[0, 0], [2.0, -1.0j])
    assert on_air.scalars.active_mask.all()
    link = links[-1]
    assert link.h.flatten().tolist() == on_air.h_hat.flatten().tolist() == H.tolist()
    close(link.symbol_power, [[[2.5, 9.0]]])
    assert link.budget.tolist() == [[10.0, 36.0]]
    assert link.noise_variance.tolist() == [0.5]
    assert link.segment_lengths is not None
    assert link.segment_lengths.tolist() == [2.0]
    assert (link.is_linear, link.num_antennas, link.num_symbols) == (True, 1, 2)
    assert (link.variation, link.energy_budget) == (None, None)
    torch.testing.assert_close(on_air.h.abs().flatten(), H.abs())
    turned = (on_air.h / on_air.h_hat).angle().abs()
    assert 0 < float(turned.min()) <= float(turned.max()) <= 0.5


# ---- the combiner


class Half(Receiver):
    """f = (1, j) / sqrt(2)."""

    name: str = "half"

    def combine(
        self, h: torch.Tensor, transmit_mask: torch.Tensor, budget: torch.Tensor
    ) -> torch.Tensor:
        f = torch.tensor([1.0, 1.0j], dtype=h.dtype) / math.sqrt(2.0)
        return f.expand(*h.shape[:2], 2)


def test_two_antennas_and_two_blocks() -> None:
    """Device 1 is received as (1, 0), device 2 as (2j, 4): f^H h is 1 / sqrt(2), and (2j - 4j) /
    sqrt(2). The noise is that of one antenna. Each segment has the channel of its block."""
    h = torch.tensor([[1.0, 0.0], [2.0j, 4.0]], dtype=torch.complex128)[:, :, None, None]
    _, on_air = on_air_of(delivery(h=h), alignment(receiver=Half()))
    expected = torch.tensor([1.0, -2.0j], dtype=torch.complex128) / math.sqrt(2.0)
    torch.testing.assert_close(on_air.h.flatten(), expected)
    assert on_air.noise.tolist() == [[0.5]]
    _, on_air = on_air_of(delivery(h=BLOCKS, block_symbols=1))
    assert on_air.h[0].tolist() == [H.tolist(), (3.0 * H).tolist()]


# ---- what is on air, and what the server makes of it


def test_without_limits() -> None:
    """Both arrive with gain one, of weights 1/4 and 3/4: 1/4 (2, 4) + 3/4 (2, -2). The noise has
    the standard deviation sqrt(N / eta) / (K W) = sqrt(0.5 / 4) / 2, and is the group's stream."""
    made, on_air = on_air_of(delivery())
    torch.testing.assert_close(on_air.gain[0, 0], torch.ones(2).to(H))
    assert on_air.signal is on_air.sent
    assert (on_air.weight.tolist(), on_air.unit.tolist()) == ([[1.0]], [[0.5]])
    close(on_air.row_gain[:, 0], [0.25, 0.75])
    close(on_air.noise_std.square(), [[0.5 / 4 / 4]])
    assert delivered(made, on_air) == [[True, True]]
    noise = torch.tensor([[1.0, -2.0]]).double()
    estimate, exact = superpose(on_air, noise)
    close(exact, [[2.0, -0.5]])
    torch.testing.assert_close(estimate, exact + noise * (0.125**0.5 / 2))
    drawn = draw_noise(STREAMS, on_air.sent, 0)
    torch.testing.assert_close(drawn, STREAMS.draw_normal("noise/0", 0, (2,)))


def test_what_a_group_costs_and_what_is_saved() -> None:
    """|p|^2 e is 4 * 5 and 1 * 18 over two channel uses at 2 Hz, half a joule each; three scalars
    of side information from each device besides two pilots. The Gram matrix of (2, 4), (2, -2)."""
    made, on_air = on_air_of(delivery())
    account(on_air, made, 3)
    report = made.report()
    assert report.symbols.tolist() == [2.0]
    close(report.energy_j, [[10.0, 9.0]])
    close(report.power, [[10.0, 9.0]])
    assert report.on_air_s.tolist() == [[1.0, 1.0]]
    assert report.side_symbols.tolist() == [4.0 + 6.0]
    assert report.participants.tolist() == [2.0]
    saved = collect_coefficients(on_air, gram=True)
    assert saved["gram/0"].tolist() == [[[[20.0, -4.0], [-4.0, 8.0]]]]
    close(saved["c/0"], [[[1.0, 1.0]]])
    assert saved["weight/0"].tolist() == [[0.25, 0.75]]
    assert "gram/0" not in collect_coefficients(on_air, gram=False)
