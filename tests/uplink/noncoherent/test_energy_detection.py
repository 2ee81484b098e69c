"""Votes and sums by received energies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.link_bench import make_bench, make_cohort
from torch import Tensor

from otafl.core.contracts import NO_LIMITS, Group, TransmitLimits
from otafl.core.errors import UserError
from otafl.scenario import ScenarioError, load_scenario
from otafl.uplink.base import deliver

pytestmark = pytest.mark.exact


STEP = 0.5


def votes(x: Tensor, limits: TransmitLimits = NO_LIMITS, mask: Any = None, **options: Any) -> Any:
    """The step [P] and the report of devices that send rows of x, at 60 dB over fading."""
    link = make_bench(
        "full", transport="fsk_majority_vote", snr_db=60.0, devices=len(x), step=STEP, **options
    )
    who = make_cohort((len(x),), len(x))
    known = None if mask is None else {"x": mask}
    group = Group({"x": x.double()}, mask=known)
    received, report = deliver(link.transport, (group,), who, link.channel.get_state(0), 0, limits)
    return received.mean[0]["x"][0], received, report


def test_the_step_goes_along_signs_that_all_share() -> None:
    x = torch.tensor([[1.0, -2.0, 0.0, -0.0, -1e-9]]).repeat(3, 1)
    step, received, report = votes(x)
    assert step.tolist() == [STEP, -STEP, STEP, STEP, -STEP]
    assert received.group_weight[0].tolist() == [1.0]
    assert report.symbols.tolist() == [10.0]
    assert report.side_symbols.tolist() == [0.0]
    torch.testing.assert_close(report.power, torch.full((1, 3), 1e6).double())
    assert report.nmse.tolist() == [0.0]


def test_absentees_leave_the_vote_to_others() -> None:
    x = torch.tensor([[1.0, -0.01, 1.0], [-0.01, 1.0, 1.0], [-0.01, -0.01, 1.0]])
    step, _, report = votes(x, absentee=0.1)
    assert step.tolist() == [STEP] * 3
    torch.testing.assert_close(report.power[0] / 1e6, torch.tensor([2, 2, 1]).double() / 3)
    relative, _, _ = votes(x, absentee=0.1, absentee_of="rms")
    assert torch.equal(relative, step)
    with pytest.raises(UserError, match=r"absentee: 5 .* silences all devices"):
        votes(x, absentee=5.0)


def test_the_unknown_is_no_vote() -> None:
    x = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    mask = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).double()
    step, received, report = votes(x, mask=mask)
    assert step.tolist() == [STEP, -STEP, 0.0]
    assert received.group_weight[0]["x"].tolist() == [[0.5, 0.5, 0.0]]
    assert report.nmse.tolist() == [0.0]


def test_crashes_and_energy_end_a_vote() -> None:
    """Device 0 crashes after two of four reals; device 1 has no energy, and half of it pays for
    half the power."""
    x = torch.tensor([[1.0] * 4, [-1.0] * 4]).double()
    sent = torch.tensor([[0.5, 1.0]]).double()
    step, _, report = votes(
        x, TransmitLimits(sent_fraction=sent, energy_budget=torch.tensor([[1e30, 0.0]]).double())
    )
    assert step[:2].tolist() == [STEP] * 2
    assert report.delivered_mask_fns[0]().tolist() == [[[True, True, False, False], [False] * 4]]
    assert report.participants.tolist() == [1.0]
    step, _, report = votes(x, TransmitLimits(sent_fraction=sent))
    assert step[2:].tolist() == [-STEP] * 2
    half = torch.tensor([[4e6, 1e30]]).double()
    _, _, report = votes(x, TransmitLimits(energy_budget=half))
    torch.testing.assert_close(report.power, torch.tensor([[0.5e6, 1e6]]).double())


def test_a_sum_is_no_vote() -> None:
    link = make_bench("full", transport="fsk_majority_vote", devices=2)
    group = Group({"x": torch.ones(2, 3).double()}, weighting="none")
    with pytest.raises(UserError, match="gives the server a vote"):
        deliver(link.transport, (group,), make_cohort((2,), 2), link.channel.get_state(0), 0)


@pytest.mark.parametrize("transport", ["fsk_majority_vote", "reed"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("csi", "pilots"), ("power", "ci"), ("power", "genie"), ("receiver", "mrc")),
        *(("impairments", {"adc_bits": 4}), ("impairments", {"timing_offset": 0.1})),
    ],
)
def test_channel_knowledge_is_refused(transport: str, key: str, value: Any) -> None:
    with pytest.raises(ScenarioError, match=f"{key}.* does not go with transport: '{transport}'"):
        load_scenario({"name": "a", "transport": transport, key: value})
    for power in ("full", "gbma"):
        load_scenario({"name": "a", "transport": transport, "power": power})


LOUD = 80.0


def sent(
    groups: tuple[Group, ...], weight: list[float], h: Tensor | None = None, **options: Any
) -> Any:
    """What arrives of groups at 80 dB, over no fading or a channel h [S, K, A, B, F]."""
    devices = len(weight)
    limits, block = options.pop("limits", NO_LIMITS), options.pop("block", None)
    link = make_bench(
        "full", transport="reed", devices=devices, snr_db=LOUD, fading=False, **options
    )
    who = make_cohort((devices,), devices, weight=weight)
    state = link.channel.get_state(0)
    if h is not None:
        state = replace(
            state, h=h, block_symbols=block, blocks_fn=lambda blocks: h[:, :, :, :blocks]
        )
    return deliver(link.transport, groups, who, state, 0, limits)


def test_without_rivals_the_mean_arrives() -> None:
    """Each coordinate is sent by one device, so that no phases play a part; the noise is 80 dB
    down."""
    x = torch.tensor([[2.0, -1.0, 0.0, 0.0], [0.0, 0.0, -3.0, 0.5]]).double()
    received, report = sent((Group({"x": x}),), [0.75, 0.25])
    hand = torch.tensor([[1.5, -0.75, -0.75, 0.125]]).double()
    torch.testing.assert_close(received.mean[0]["x"], hand, atol=2e-3, rtol=0)
    assert report.symbols.tolist() == [8.0]
    assert report.side_symbols.tolist() == [2.0]
    spent = torch.tensor([[1.0, 0.875 / 2.25]]).double()  # of mean |K w x|
    torch.testing.assert_close(report.power / 1e8, spent)
    assert report.nmse.item() < 1e-5


def test_energies_of_antennas_are_averaged() -> None:
    """Four antennas without fading give the mean that one gives."""
    x = torch.tensor([[2.0, 0.0], [0.0, -3.0]]).double()
    h = torch.ones(1, 2, 4, 1, 1, dtype=torch.complex128)
    received, _ = sent((Group({"x": x}),), [0.75, 0.25], h, block=8)
    hand = torch.tensor([[1.5, -0.75]]).double()
    torch.testing.assert_close(received.mean[0]["x"], hand, atol=2e-3, rtol=0)


def test_masks_groups_and_sums() -> None:
    x = torch.tensor([[2.0, 4.0], [0.0, 6.0]]).double()
    mask = {"x": torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()}
    groups = (
        Group({"x": x}, mask=mask),
        Group({"y": torch.tensor([[0.0], [-2.0]]).double()}, weighting="none"),
    )
    received, report = sent(groups, [0.75, 0.25])
    torch.testing.assert_close(
        received.mean[0]["x"], torch.tensor([[2.0, 6.0]]).double(), rtol=1e-3, atol=0
    )
    torch.testing.assert_close(
        received.mean[1]["y"], torch.tensor([[-2.0]]).double(), rtol=1e-3, atol=0
    )
    torch.testing.assert_close(received.group_weight[0]["x"], torch.tensor([[0.75, 0.25]]).double())
    assert report.symbols.tolist() == [6.0]
    assert report.side_symbols.tolist() == [4.0]


@pytest.mark.parametrize("reals", [6000])
def test_cells_have_energies_of_their_own(reals: int) -> None:
    """A block of 7 channel uses: real i is in block 2 i // 7, whose energy is 1, 2, 3, ..."""
    blocks = -(-2 * reals // 7)
    h = torch.arange(1, blocks + 1).double().sqrt()[None, None, None, :, None] + 0j
    x = torch.where(torch.arange(reals) % 2 == 0, 1.0, -1.0).double()[None]
    received, _ = sent((Group({"x": x}),), [1.0], h, block=7)
    hand = x * (2 * torch.arange(reals) // 7 + 1)
    torch.testing.assert_close(received.mean[0]["x"], hand, rtol=5e-3, atol=0)


@pytest.mark.parametrize("calibrate", [True, False])
def test_gains_weigh_devices_that_are_not_calibrated(calibrate: bool) -> None:
    link = make_bench(
        "full", transport="reed", devices=2, snr_db=LOUD, fading=False, calibrate=calibrate
    )
    state = replace(link.channel.get_state(0), gain=torch.tensor([[3.0, 1.0]]).double())
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    received, report = deliver(link.transport, (Group({"x": x}),), make_cohort((2,), 2), state, 0)
    hand = [[0.5, 0.5]] if calibrate else [[0.75, 0.25]]
    torch.testing.assert_close(
        received.mean[0]["x"], torch.tensor(hand).double(), rtol=1e-3, atol=0
    )
    power = [[1 / 3, 1.0]] if calibrate else [[1.0, 1.0]]
    torch.testing.assert_close(report.power / 1e8, torch.tensor(power).double())
