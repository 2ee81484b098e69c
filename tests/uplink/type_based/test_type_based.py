"""Type-based multiple access against counting in loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.limited_bench import compute_radiated, make_case, make_table, send
from support.link_bench import WEIGHTS, Bench, draw_updates, make_bench, make_cohort
from twins.counts import find_nearest_counts

import otafl
from otafl.core.contracts import Group, LinkReport, TransmitLimits
from otafl.core.errors import UserError
from otafl.core.rng import make_step_key
from otafl.scenario import load_scenario
from otafl.uplink.type_based import type_based

pytestmark = pytest.mark.exact


K, M, P = 6, 5, 23
WHO = make_cohort(weight=WEIGHTS)
WEIGHT = WHO.normalised_weight.numpy()


def twin(
    link: Bench,
    report: LinkReport,
    x: np.ndarray,
    how: str,
    cell: np.ndarray,
    mask: np.ndarray,
    stops: np.ndarray,
    index: int = 0,
) -> np.ndarray:
    """Estimate [P] of the first trial of rows x [K, P] that know part of them and send up to a
    crash, with the transport's own scalars and draws."""
    saved = {
        name[:-2]: value[0].numpy()
        for name, value in report.saved_tensors.items()
        if name[-1] == str(index)
    }
    streams, width = link.streams, max(1, type_based.CHUNK // M)
    rounding = streams.draw_device_uniform(
        f"rounding_to_levels/{index}", 0, WHO.trial, WHO.device, (x.shape[1],)
    ).numpy()
    weight, active = saved["weight"], saved["active"]
    top = np.abs(K * weight[:, None] * x).max()
    v = np.linspace(-top, top, M)
    out = np.zeros(x.shape[1])
    for i in range(x.shape[1]):
        q = int(cell[i])
        number, at = divmod(i, width)
        draw = streams.draw_normal(f"noise/{index}", make_step_key(0, number), (M, width))[
            0, :, at
        ].numpy()
        y = draw * math.sqrt(saved["noise"][q] / saved["eta"][q])
        senders, on = 0, 0.0
        for k in range(K):
            place = (K * weight[k] * x[k, i] + top) / (v[1] - v[0])
            level = min(M - 1, int(place + rounding[k, i]))
            known = mask[k, i] * active[q, k]
            senders, on = senders + int(known), on + known * weight[k]
            if i < stops[k]:
                y[level] += known * saved["c"][q, k]
        if how == "round":
            y = np.clip(np.round(y), 0, senders)
        elif how == "lattice":
            y = find_nearest_counts(y, senders)
        out[i] = v @ y / (K * on) if on else 0.0
    return out


@pytest.mark.parametrize(
    ("case", "how"),
    [
        ("plain", "none"),
        ("plain", "lattice"),
        ("blocks", "round"),
        ("silence", "lattice"),
        ("parts", "round"),
        ("crashes", "lattice"),
    ],
)
def test_against_counting(case: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coherence blocks of 33 channel uses end within a real, which keeps the fade it began with."""
    monkeypatch.setattr(type_based, "CHUNK", 8 * M)
    silence = case == "silence"
    policy = "tci" if silence else "ci"
    link = make_bench(
        policy, transport="type_based", levels=M, project=how, threshold=0.6, snr_db=2.0
    )
    made = make_case(link, case, P, M, blocks=4, length=33)
    received, report = send(made.link, (made.group,), WHO, made.limits)
    expected = twin(link, report, made.x, how, made.cell, made.mask, made.stops)
    got = received.mean[0]["a"][0].numpy()
    np.testing.assert_allclose(got, expected, atol=1e-9)
    assert bool(report.saved_tensors["active/0"][0].all()) != silence
    np.testing.assert_allclose(report.nmse, [made.compute_nmse(got, WEIGHT)], rtol=1e-9)


def test_power_energy_uses_and_side_information() -> None:
    """One channel use of M carries a pulse of M times the budget: the weakest device of `ci` is at
    its budget. Circuits take M channel uses a real, and each device tells one number, or one for
    each block, or none where the range is given."""
    group = Group({"a": draw_updates(K, 14), "b": 9.0 * draw_updates(K, 9)})
    for wanted, told in (("payload", 1), ("block", 2), (3.0, 0)):
        link = make_bench("ci", transport="type_based", levels=M, range=wanted)
        _, report = send(link, (group,), WHO)
        p = report.saved_tensors["p/0"][0, 0].abs().square().numpy()
        budget = float(link.budget[0])
        assert p.max() == pytest.approx(M * budget)
        np.testing.assert_allclose(report.power[0], p / M)
        np.testing.assert_allclose(compute_radiated(link, report)[0], P * p)
        assert report.symbols.tolist() == [M * P]
        assert report.airtime_s.item() == pytest.approx(M * P * 1e-6)
        assert report.side_symbols.tolist() == [K * told]
        ends = report.saved_tensors["range/0"][0].tolist()
        parts = [group.tensors["a"], group.tensors["b"]]
        largest = [np.abs(K * WEIGHT[:, None] * part.numpy()).max() for part in parts]
        wanted_ends = {"payload": [max(largest)], "block": largest}.get(str(wanted), [3.0])
        assert ends == pytest.approx(wanted_ends)
    short = TransmitLimits(
        energy_budget=make_table([1e4] * K),
        energy_per_symbol=make_table([1e4 / (M * P) + 1e-6] * K),
    )
    _, report = send(make_bench("ci", transport="type_based", levels=M), (group,), WHO, short)
    assert report.participants.tolist() == [0]


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_error_follows_from_what_is_saved(rounding: str) -> None:
    """Squared deviations, rounding and noise: E = a^T G a + sum (c w)^2 r + P unit^2 (N / eta) sum
    v^2 for stochastic rounding, which is independent; 400 trials' mean within 5 standard errors.
    To the nearest, the rounding errors are at most half a step."""
    trials = 400
    link = make_bench(
        "ci", tuple(range(trials)), transport="type_based", levels=M, rounding=rounding
    )
    x = draw_updates(K, P).repeat(trials, 1)
    _, report = send(link, (Group({"a": x}),), make_cohort((K,) * trials, weight=WEIGHTS * trials))
    saved = {name[:-2]: value for name, value in report.saved_tensors.items()}
    w = saved["weight"]
    c = saved["c"][:, 0]
    off = c * w - w
    top = saved["range"][:, 0]
    v = torch.linspace(-1.0, 1.0, M).double()
    noise = P * (0.5 / saved["eta"][:, 0]) * (v.square().sum() * top.square()) / K**2
    law = torch.einsum("sk,skj,sj->s", off, saved["gram"][:, 0], off) + noise
    target = torch.einsum("sk,skj,sj->s", w, saved["gram"][:, 0], w)
    rounded = saved["rounding"][:, 0] * (K * w).square()
    assert (rounded <= P * (2.0 * top[:, None] / (M - 1)).square()).all()
    if rounding == "nearest":
        assert (rounded <= P * (top[:, None] / (M - 1)).square()).all()
        return
    law = law + (rounded / K**2).sum(1)
    error = report.nmse * target
    ratio = error - law
    assert abs(ratio.mean()) < 5 * ratio.std() / trials**0.5
    assert ratio.std() / trials**0.5 < 0.1 * law.mean()


def test_saved_variables_of_a_run() -> None:
    keys = {"power": "ci", "transport": "type_based", "devices": {"count": 3}}
    sizes = {"data": "digits", "training": {"rounds": 1, "local_steps": 1}, "trials": 2}
    results = otafl.run({"name": "s", "output": {"save_link": True}} | keys | sizes)
    assert results["link_rounding_0"].dims == ("trial", "link_round", "segment_0", "device")
    assert dict(results["link_range_0"].sizes) == {"trial": 2, "link_round": 1, "stretch_0": 1}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "power: 'gbma' does not go with transport: 'type_based', which receives counts"),
        ({"power": "full"}, "use genie or ci or multi_antenna_ci or tci or cotaf or budget_paced"),
        (
            {"power": "ci", "receiver": {"name": "auto", "scale": "mmse"}},
            "receiver.scale: mmse does not go with transport: 'type_based'",
        ),
        (
            {"power": "ci", "impairments": {"clip_db": 3.0}},
            "impairments.clip_db: 3.0 does not go with transport: 'type_based'",
        ),
    ],
)
def test_what_it_refuses(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as raised:
        load_scenario({"name": "s", "transport": "type_based"} | keys)
    assert said in " ".join(str(raised.value).split())
