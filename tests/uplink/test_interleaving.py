"""Symbols in a pseudo-random order over the cells of a channel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from support.link_bench import WEIGHTS, Bench, draw_updates, make_bench, make_cohort, make_given
from torch import Tensor

from otafl.core.contracts import Group, TransmitLimits
from otafl.uplink.base import deliver
from otafl.uplink.coherent.over_the_air import OverTheAir
from otafl.uplink.groups import make_signal
from otafl.uplink.interleaving import interleave, permutation

K, CELLS, LENGTH, LEVEL = 6, 8, 250, 1e-4
HOST = torch.device("cpu")


def uplink(policy: str = "ci", trials: int = 1, cells: int = CELLS, **options: Any) -> Bench:
    """Six devices over so many sub-carrier groups."""
    return make_given(
        make_bench(policy, tuple(range(trials)), interleave=True, **options), groups=cells
    )


def split(widths: dict[str, int], seed: int = 0) -> dict[str, Tensor]:
    """Updates of blocks of these widths."""
    whole = draw_updates(K, sum(widths.values()), seed)
    return dict(zip(widths, whole.split(list(widths.values()), 1), strict=True))


@pytest.mark.exact
@pytest.mark.parametrize("length", [1, 41])
def test_the_order_is_undone(length: int) -> None:
    order, place = permutation("0", length, HOST)
    assert sorted(order.tolist()) == list(range(length))
    x = draw_updates(K, length)
    mixed = interleave(make_signal(Group({"a": x}), make_cohort()))
    assert torch.equal(mixed.x, x[:, order])
    assert torch.equal(mixed.blocks(mixed.x)["a"], x)
    assert torch.equal(order[place], torch.arange(length))
    assert length < 3 or not torch.equal(mixed.x, x)


@pytest.mark.exact
def test_the_order_is_everybodys() -> None:
    """It depends on neither seed, trial, round, precision nor stack: known to both ends."""
    order, _ = permutation("0", 9, HOST)
    assert order.tolist() == [4, 6, 5, 3, 8, 7, 0, 1, 2]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("block_symbols", "quadrature", "weighting"), [(None, True, "mean"), (16, True, "none")]
)
def test_without_noise_and_distortion(
    block_symbols: int | None, quadrature: bool, weighting: Any
) -> None:
    """Inversion at 300 dB gives every group back, of odd lengths, over 8 sub-carrier groups in one
    or several coherence blocks."""
    link = make_bench("ci", snr_db=300.0, interleave=True, quadrature=quadrature)
    link = make_given(link, 1, 1 if block_symbols is None else 9, CELLS, block_symbols)
    blocks = split({"a": 13, "b": 28}), split({"c": 31}, 1)
    payload = tuple(Group(one, weighting=weighting) for one in blocks)
    received, report = link.deliver(payload, make_cohort(weight=WEIGHTS))
    w = torch.tensor(WEIGHTS, dtype=torch.float64)
    w = w / w.sum() if weighting == "mean" else torch.ones_like(w)
    for got, group in zip(received.mean, payload, strict=True):
        for name, block in group.tensors.items():
            torch.testing.assert_close(got[name][0], (w[:, None] * block).sum(0))
    plain = make_given(make_bench("ci", quadrature=quadrature), groups=CELLS).deliver(
        payload, make_cohort()
    )[1]
    assert torch.equal(report.symbols, plain.symbols)


@pytest.mark.exact
def test_masks_are_in_the_same_order() -> None:
    """Each coordinate is the mean over those who know it."""
    x = draw_updates(K, 40)
    mask = (torch.rand(K, 40, generator=torch.Generator().manual_seed(1)) < 0.6).double()
    received, _ = uplink(snr_db=300.0).deliver((Group({"a": x}, mask={"a": mask}),), make_cohort())
    known = mask.sum(0)
    hand = torch.where(known > 0, (x * mask).sum(0) / known.clamp_min(1), 0.0)
    torch.testing.assert_close(received.mean[0]["a"][0], hand)
    count = received.group_weight[0]
    assert isinstance(count, dict)
    torch.testing.assert_close(count["a"][0], known / K)


@pytest.mark.exact
def test_crashes_are_in_time() -> None:
    """A device that crashes after 30 % of the slot has sent as many symbols of all groups together,
    and is heard where without noise its part of the sum is there."""
    link = uplink(devices=K, snr_db=300.0)
    payload = (Group(split({"a": 20, "b": 30})), Group(split({"c": 50}, 1)))
    sent = torch.ones(1, K, dtype=torch.float64)
    sent[0, 2] = 0.3
    state = link.channel.get_state(0)
    received, report = deliver(
        link.transport, payload, make_cohort(), state, 0, TransmitLimits(sent_fraction=sent)
    )
    parts = [report.saved_tensors[f"sent/{index}"].sum(1)[0] for index in range(2)]
    assert (parts[0] + parts[1]).tolist() == [100, 100, 30, 100, 100, 100]
    assert 5 < parts[0][2] < 25
    for group, got, of_group in zip(payload, received.mean, report.delivered_mask_fns, strict=True):
        exact = torch.cat([block.mean(0) for block in group.tensors.values()])
        missing = torch.cat([block[0] for block in got.values()]) - exact
        heard = of_group()[0]
        assert torch.equal(heard[2], missing.abs() < 1e-9)
        assert heard[[0, 1, 3, 4, 5]].all()


@pytest.mark.exact
def test_blocks_that_are_normalised_alone_are_not_mixed() -> None:
    with pytest.raises(ValidationError, match="needs normalise: payload"):
        OverTheAir.Settings(interleave=True, normalise="block")
