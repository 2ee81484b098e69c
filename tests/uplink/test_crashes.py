"""Crashes in the middle of a slot and updates sent twice, by hand and against a symbol-by-symbol
twin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.limited_bench import compute_radiated, estimate, make_digital, make_table, send
from support.link_bench import (
    WEIGHTS,
    draw_updates,
    make_bench,
    make_cohort,
    make_given,
)
from support.rounding import assert_agree

from otafl.core.contracts import Group, TransmitLimits

pytestmark = pytest.mark.exact

K = 6
WHO = make_cohort(weight=WEIGHTS)
WEIGHT = WHO.normalised_weight.numpy()
SENT = make_table([1.0, 0.5, 0.02, 0.8, 0.3, 1.0])
X, Y = draw_updates(K, 21), 2.0 * draw_updates(K, 12, 1)
GROUPS = (
    Group({"a": X}),
    Group({"b": draw_updates(K, 3, 2)}, route="ideal", reason="a test"),
    Group({"c": Y}),
)


def in_time(x: np.ndarray, stops: np.ndarray, start: int, quadrature: bool) -> np.ndarray:
    """x [K, P] as far as it was sent."""
    symbols = -(-x.shape[1] // 2) if quadrature else x.shape[1]
    use = start + np.arange(x.shape[1]) % symbols
    return x * (use < stops[:, None])


@pytest.mark.parametrize(
    ("policy", "block", "quadrature"),
    [("full", None, True), ("ci", None, False), ("tci", 10, False), ("gbma", 10, True)],
)
def test_over_the_air(policy: str, block: int | None, quadrature: bool) -> None:
    """33 channel uses, or 17, of two groups; the crashes of devices 1 and 4 are in the first, that
    of device 3 in the second, device 2 has sent nothing."""
    link = make_bench(policy, quadrature=quadrature)
    if block is not None:
        link = make_given(link, blocks=4, block_symbols=block)
    first, symbols = (11, 17) if quadrature else (21, 33)
    stops = np.floor(SENT[0].numpy() * symbols)
    assert stops.tolist() == ([17, 8, 0, 13, 5, 17] if quadrature else [33, 16, 0, 26, 9, 33])
    _, whole = send(link, GROUPS, WHO)
    received, report = send(link, GROUPS, WHO, TransmitLimits(sent_fraction=SENT))
    total, error, target = np.zeros(K), 0.0, 0.0
    for index, name, x, start in ((0, "a", X.numpy(), 0), (2, "c", Y.numpy(), first)):
        for kept in ("p", "eta", "c", "m", "active"):
            key = f"{kept}/{index}"
            assert_agree(report.saved_tensors[key], whole.saved_tensors[key], key)
        length = -(-x.shape[1] // 2) if quadrature else x.shape[1]
        cell = (start + np.arange(length)) // (block or 10**9)
        cell -= cell[0]
        got = received.mean[index][name][0].numpy()
        expected = estimate(
            link, report, x, WEIGHT, stops,
            index=index, start=start, cell=cell, quadrature=quadrature,
        )  # fmt: skip
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-10)
        exact = WEIGHT @ x
        error, target = error + ((got - exact) ** 2).sum(), target + (exact**2).sum()
        p = report.saved_tensors[f"p/{index}"][0].numpy()
        column = np.tile(cell, 2)[: x.shape[1]]
        sent = in_time(x, stops, start, quadrature)
        total += (np.abs(p[column]).T ** 2 * (K * WEIGHT[:, None] * sent) ** 2).sum(1)
        uses = report.saved_tensors[f"sent/{index}"][0].sum(0).numpy()
        np.testing.assert_array_equal(uses, np.clip(stops - start, 0, length))
    np.testing.assert_allclose(compute_radiated(link, report)[0], total, rtol=1e-9)
    assert float(report.nmse[0]) == pytest.approx(error / target, rel=1e-9)
    assert torch.equal(report.participants, whole.participants)
    assert_agree(report.airtime_s, whole.airtime_s)


def test_the_server_divides_by_the_whole_weight() -> None:
    """Without noise, fading or a policy's scaling: two devices that know different coordinates, of
    weight a half each; the second crashes in the middle."""
    link = make_bench("ci", devices=2, fading=False, snr_db=200.0)
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0]], dtype=torch.float64)
    known = torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    group = Group({"a": x}, mask={"a": known})
    limits = TransmitLimits(sent_fraction=make_table([1.0, 0.5]))
    received, _ = send(link, (group,), make_cohort((2,), 2), limits)
    expected = [1.0, 11.0, 1.5, 0.0]
    np.testing.assert_allclose(received.mean[0]["a"][0].numpy(), expected, atol=1e-6)
    assert received.group_weight[0]["a"].tolist() == [[0.5, 1.0, 1.0, 0.5]]  # type: ignore[index]


# ---- sent twice


@pytest.mark.parametrize("policy", ["full", "gbma"])
def test_twice_in_the_sum(policy: str) -> None:
    """As if the device's signal were twice as large, with the mean still by the true weights."""
    link, copies = make_bench(policy), make_table([1.0, 2.0, 1.0, 1.0, 2.0, 1.0])
    received, report = send(link, (Group({"a": X}),), WHO, TransmitLimits(num_copies=copies))
    doubled, cost = send(link, (Group({"a": X * copies.mT}),), WHO)
    torch.testing.assert_close(received.mean[0]["a"], doubled.mean[0]["a"])
    torch.testing.assert_close(report.energy_j, cost.energy_j)
    torch.testing.assert_close(report.saved_tensors["eta/0"], cost.saved_tensors["eta/0"])
    torch.testing.assert_close(
        report.saved_tensors["c/0"], cost.saved_tensors["c/0"] * copies[:, None]
    )
    got, exact = received.mean[0]["a"][0].numpy(), WEIGHT @ X.numpy()
    assert float(report.nmse[0]) == pytest.approx(((got - exact) ** 2).sum() / (exact**2).sum())
    expected = estimate(link, report, X.numpy(), WEIGHT)
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    if link.transport.parts.alignment.policy.power_constraint == "peak":
        assert (report.power <= 10.0 * (1 + 1e-9)).all()
    assert float(report.participants[0]) == float(cost.participants[0])


TEN = (Group({"a": draw_updates(3, 10)}),)
THREE = make_cohort((3,), 3)
USES = np.array([320.0, 160.0, 80.0])


def packets(
    limits: TransmitLimits, access: str = "tdma"
) -> tuple[list[bool], list[float], Any, Any]:
    """Which of three packets came, what each cost in channel uses of the whole band, and all."""
    link = make_digital(1, 3, 15) if access == "tdma" else make_digital(1 / 3, 1, 5, access=access)
    received, report = send(link, TEN, THREE, limits)
    came = [True] * 3 if received.delivered_mask is None else received.delivered_mask[0].tolist()
    return came, (compute_radiated(link, report)[0] / 10.0).tolist(), received, report


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_a_crashed_packet_is_lost(access: str) -> None:
    came, cost, received, report = packets(
        TransmitLimits(sent_fraction=make_table([1.0, 0.25, 1.0])), access
    )
    assert came == [True, False, True]
    expected = USES * (1 if access == "tdma" else 3 / np.log2([2, 4, 16]) * [1, 2, 4])
    expected[1] /= 4
    np.testing.assert_allclose(cost, expected)
    slot = expected.sum() if access == "tdma" else expected.max()
    assert float(report.symbols[0]) == pytest.approx(slot)
    assert float(report.bits[0]) == pytest.approx(320 + 80 + 320)
    assert report.participants.tolist() == [2]
    torch.testing.assert_close(received.mean[0]["a"][0], TEN[0].tensors["a"][[0, 2]].mean(0))
    assert received.per_device is not None
    assert received.per_device[0]["a"][1].eq(0).all()
    assert float(received.group_weight[0][0]) == pytest.approx(2 / 3)


def test_a_repeated_packet_is_paid_and_dropped() -> None:
    came, cost, received, report = packets(TransmitLimits(num_copies=make_table([1.0, 2.0, 1.0])))
    assert came == [True] * 3
    np.testing.assert_allclose(cost, USES * [1, 2, 1])
    assert float(report.symbols[0]) == pytest.approx(720)
    assert float(report.bits[0]) == pytest.approx(4 * 320)
    torch.testing.assert_close(received.mean[0]["a"][0], TEN[0].tensors["a"].mean(0))


@pytest.mark.parametrize(
    ("limits", "comes", "times"),
    [
        ({"sent_fraction": [0.6, 0.4, 0.5]}, [True, False, True], [1.2, 0.8, 1.0]),
        ({"energy_budget": [6400.0, 3199.0, 799.0]}, [True, True, False], [2, 1, 0]),
    ],
    ids=["a crash in the second one is too late", "energy for both, for one, for less"],
)
def test_two_copies(limits: dict[str, list[float]], comes: list[bool], times: list[float]) -> None:
    given = {name: make_table(row) for name, row in limits.items()}
    came, cost, *_ = packets(TransmitLimits(num_copies=make_table([2.0] * 3), **given))
    assert came == comes
    np.testing.assert_allclose(cost, USES * times)
