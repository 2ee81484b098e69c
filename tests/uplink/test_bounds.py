"""Energy and power limits of a slot, by hand and against a symbol-by-symbol twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.limited_bench import (
    compute_radiated,
    estimate,
    make_digital,
    make_table,
    replace_budget,
    send,
)
from support.link_bench import (
    WEIGHTS,
    Bench,
    draw_updates,
    make_bench,
    make_cohort,
    make_given,
)
from support.rounding import assert_agree

from otafl.core.contracts import Coefficients, Group, Link, TransmitLimits

pytestmark = pytest.mark.exact

K = 6
INF = float("inf")
WHO = make_cohort(weight=WEIGHTS)
SHARES = make_table([1.0, 0.5, 0.25, 0.1, 1.0, 0.7])


WEIGHT = WHO.normalised_weight.numpy()


def payload() -> tuple[Group, ...]:
    """Two groups on the uplink with one that is carried ideally in between."""
    return (
        Group({"a": draw_updates(K, 21)}),
        Group({"b": draw_updates(K, 3, 2)}, route="ideal", reason="a test"),
        Group({"c": 2.0 * draw_updates(K, 12, 1)}),
    )


def fading(policy: str, block: int | None, blocks: int, quadrature: bool) -> Bench:
    link = make_bench(policy, quadrature=quadrature)
    return link if block is None else make_given(link, blocks=blocks, block_symbols=block)


def cells(start: int, symbols: int, block: int | None) -> np.ndarray:
    """[symbols] the segment of each channel use of a group that begins at `start`."""
    place = np.arange(start, start + symbols) // (block or 10**9)
    return place - place[0]


def energy(x: np.ndarray, p: np.ndarray, cell: np.ndarray, quadrature: bool) -> np.ndarray:
    """[K] of signals x [K, P] of all devices, sent with p [Q, K]."""
    square = (K * WEIGHT[:, None] * x) ** 2
    if quadrature:
        square = np.pad(square, ((0, 0), (0, square.shape[1] % 2)))
        square = square[:, : len(cell)] + square[:, len(cell) :]
    return (np.abs(p[cell]).T ** 2 * square).sum(1)


class Looking:
    """A policy that keeps what it sees and says."""

    def __init__(self, policy: Any) -> None:
        self._policy, self.seen, self.said = policy, list[Link](), list[Coefficients]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def compute_coefficients(self, state: Any, link: Link) -> tuple[Any, Coefficients]:
        state, said = self._policy.compute_coefficients(state, link)
        self.seen.append(link)
        self.said.append(said)
        return state, said


def looking(link: Bench) -> Looking:
    policy = Looking(link.transport.parts.alignment.policy)
    object.__setattr__(link.transport.parts.alignment, "policy", policy)
    return policy


@pytest.mark.parametrize(("policy", "transport"), [("ci", "over_the_air"), ("full", "digital")])
def test_a_share_of_the_power_is_a_smaller_budget(policy: str, transport: str) -> None:
    link = make_bench(policy, transport=transport)
    smaller = replace_budget(link, SHARES)
    received, report = send(link, payload(), WHO, TransmitLimits(power_share=SHARES))
    expected, cost = send(smaller, payload(), WHO)
    assert_agree(received.mean, expected.mean)
    assert_agree(report.energy_j, cost.energy_j)
    assert_agree(report.airtime_s, cost.airtime_s)
    _, whole = send(link, payload(), WHO)
    assert (report.energy_j - whole.energy_j).abs().max() > 0.01 * whole.energy_j.max()


@pytest.mark.parametrize(
    ("policy", "block", "blocks", "quadrature"),
    [("full", None, 1, False), ("ci", 10, 4, False), ("tci", 10, 4, True), ("gbma", 10, 4, True)],
)
def test_energy(policy: str, block: int | None, blocks: int, quadrature: bool) -> None:
    """Two groups, one after the other, and circuits of 0.01 a channel use of both. Devices have no
    bound, what they want, less than the first group wants, more than that, and plenty."""
    link = fading(policy, block, blocks, quadrature)
    lengths, names = (11, 6) if quadrature else (21, 12), {0: "a", 2: "c"}
    x = {index: payload()[index].tensors[name].numpy() for index, name in names.items()}
    start = {0: 0, 2: lengths[0]}
    cell = {0: cells(0, lengths[0], block), 2: cells(lengths[0], lengths[1], block)}
    _, free = send(link, payload(), WHO)
    first, second = (
        energy(x[i], free.saved_tensors[f"p/{i}"][0].numpy(), cell[i], quadrature) for i in (0, 2)
    )
    circuits = 0.01 * sum(lengths)
    bound = circuits + np.array([INF, 1, 0.5, 1, 1e9, 1]) * first + [0, 1, 0, 0.3, 0, 1] * second
    bound[5] -= circuits  # for all but the circuits
    limits = TransmitLimits(
        energy_budget=torch.from_numpy(bound)[None], energy_per_symbol=make_table([0.01] * K)
    )
    policy_says = looking(link)
    received, report = send(link, payload(), WHO, limits)
    left, total, saved = bound - circuits, np.zeros(K), report.saved_tensors
    for said, index in zip(policy_says.said, names, strict=True):
        wanted = said.p[0].numpy()
        wants = energy(x[index], wanted, cell[index], quadrature)
        cut = np.sqrt(np.minimum(1.0, left / np.where(wants > 0, wants, 1.0)))
        p = saved[f"p/{index}"][0].numpy()
        np.testing.assert_allclose(p, wanted * cut, rtol=1e-7, atol=1e-9)
        assert torch.equal(saved[f"eta/{index}"], said.eta)
        gain = saved[f"h/{index}"][0].numpy() * p / np.sqrt(said.eta[0].numpy())[:, None]
        np.testing.assert_allclose(saved[f"c/{index}"][0].numpy(), gain.real, rtol=1e-9, atol=1e-9)
        used = energy(x[index], p, cell[index], quadrature)
        total, left = total + used, np.maximum(left - used, 0.0)
        place = {"start": start[index], "cell": cell[index], "quadrature": quadrature}
        expected = estimate(link, report, x[index], WEIGHT, index=index, **place)
        got = received.mean[index][names[index]][0].numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(compute_radiated(link, report)[0], total, rtol=1e-9)
    assert (total <= np.maximum(bound - circuits, 0.0) * (1 + 1e-9)).all()
    assert total[2] == pytest.approx(0.5 * first[2], rel=1e-9)
    assert not saved["active/2"][0, :, 2].any()  # the first group took all that it had


# ---- digital: SNRs 1, 3, 15 carry 1, 2, 4 bits a channel use; 320 bits take 320, 160, 80 of them

TEN = (Group({"a": draw_updates(3, 10)}),)
THREE = make_cohort((3,), 3)


@pytest.mark.parametrize("access", ["tdma", "ofdma"])
def test_a_packet_is_paid_for_or_not_begun(access: str) -> None:
    """At a power of 10 and circuits of 2; in a third of the band a packet lasts three times its
    channel uses. The second device is one short of what it needs."""
    link = make_digital(1, 3, 15, access=access)
    snr = np.array([1.0, 3.0, 15.0]) * (3 if access == "ofdma" else 1)
    uses = 320 / np.log2(1 + snr) * (3 if access == "ofdma" else 1)
    bound = torch.from_numpy(12.0 * uses)[None]
    bound[0, 1] -= 12.0
    limits = TransmitLimits(energy_budget=bound, energy_per_symbol=make_table([2.0] * 3))
    received, report = send(link, TEN, THREE, limits)
    assert received.delivered_mask is not None
    assert received.delivered_mask[0].tolist() == [True, False, True]
    assert report.participants.tolist() == [2]
    np.testing.assert_allclose(compute_radiated(link, report)[0], 10 * uses * [1, 0, 1], rtol=1e-9)
    slot = uses[0] + uses[2] if access == "tdma" else max(uses[0], uses[2])
    assert float(report.symbols[0]) == pytest.approx(slot)
    assert float(report.bits[0]) == 640.0
    expected = TEN[0].tensors["a"][[0, 2]].mean(0)
    torch.testing.assert_close(received.mean[0]["a"][0], expected)
