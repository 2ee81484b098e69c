"""Sums of integers over the air against adding them in loops, device by device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.limited_bench import compute_radiated, make_case, send
from support.link_bench import WEIGHTS, Bench, draw_updates, make_bench, make_cohort

import otafl
from otafl.core.contracts import Group, LinkReport
from otafl.core.errors import UserError
from otafl.core.rng import make_step_key
from otafl.scenario import load_scenario
from otafl.uplink.coherent.digital_sums import CHUNK

pytestmark = pytest.mark.exact

K, P = 6, 23
WHO = make_cohort(weight=WEIGHTS)
WEIGHT = WHO.normalised_weight.numpy()

LATTICE = {"transport": "sumcomp", "radices": [3, 5]}
SLICES = {"transport": "bit_slices", "bits": 3, "bit_power": 2.0}
PAIRS = SLICES | {"quadrature": True}


def split_integer(keys: dict[str, Any]) -> list[tuple[int, int, complex, int]]:
    """Return weight, radix, spacing on a quadrature carrier, and channel use of each digit."""
    if keys["transport"] == "sumcomp":
        q1, q2 = keys["radices"]
        return [(1, q1, 1.0, 0), (q1, q2, 1.0j, 0)]
    carriers = [1.0, 1.0j] if "quadrature" in keys else [1.0]
    return [
        (
            2**b,
            2,
            math.sqrt(keys["bit_power"] ** b) * carriers[b % len(carriers)],
            b // len(carriers),
        )
        for b in range(keys["bits"])
    ]


def twin(
    keys: dict[str, Any],
    link: Bench,
    report: LinkReport,
    x: np.ndarray,
    cell: np.ndarray,
    mask: np.ndarray,
    stops: np.ndarray,
) -> np.ndarray:
    """Estimate [P] of the first trial, with the transport's own scalars and draws."""
    saved = {name[:-2]: value[0].numpy() for name, value in report.saved_tensors.items()}
    rounding = link.streams.draw_device_uniform(
        "rounding_to_levels/0", 0, WHO.trial, WHO.device, (x.shape[1],)
    ).numpy()
    digits = split_integer(keys)
    draws = [
        link.streams.draw_normal("noise/0", make_step_key(0, d), (1, x.shape[1]))[0, 0].numpy()
        for d in range(len(digits))
    ]
    weight, active = saved["weight"], saved["active"]
    gain = saved["h"] * saved["p"] / np.sqrt(saved["eta"])[:, None]
    top = np.abs(K * weight[:, None] * x).max()
    levels = math.prod(radix for _, radix, _, _ in digits)
    step = 2.0 * top / (levels - 1)
    out = np.zeros(x.shape[1])
    for i in range(x.shape[1]):
        q = int(cell[i])
        y = np.zeros(1 + max(use for *_, use in digits), dtype=complex)
        senders, on = 0, 0.0
        for k in range(K):
            place = (K * weight[k] * x[k, i] + top) / step
            a = min(levels - 1, int(place + rounding[k, i]))
            known = mask[k, i] * active[q, k]
            senders, on = senders + int(known), on + known * weight[k]
            if i < stops[k] and mask[k, i]:
                for w, radix, spacing, use in digits:
                    y[use] += gain[q, k] * spacing * (a // w % radix - (radix - 1) / 2)
        total = 0
        for (w, radix, spacing, use), draw in zip(digits, draws, strict=True):
            heard = (y[use] * np.conj(spacing) / abs(spacing)).real
            heard += draw[i] * math.sqrt(saved["noise"][q] / saved["eta"][q])
            count = round(heard / abs(spacing) + senders * (radix - 1) / 2)
            total += w * min(max(count, 0), senders * (radix - 1))
        out[i] = (step * total - top * senders) / (K * on) if on else 0.0
    return out


@pytest.mark.parametrize("keys", [LATTICE, SLICES, PAIRS], ids=["lattice", "slices", "pairs"])
@pytest.mark.parametrize("case", ["plain", "blocks", "silence", "parts", "crashes", "phases"])
def test_against_adding_in_loops(case: str, keys: dict[str, Any]) -> None:
    """Coherence blocks of 10 channel uses can end within a coordinate, which keeps its fade."""
    silence = case == "silence"
    uses = 1 + max(use for *_, use in split_integer(keys))
    link = make_bench(
        "tci" if silence else "ci",
        threshold=0.6,
        snr_db=2.0,
        variance=0.2 if case == "phases" else 0.0,
        **keys,
    )
    made = make_case(link, case, P, uses, blocks=7, length=10)
    received, report = send(made.link, (made.group,), WHO, made.limits)
    expected = twin(keys, link, report, made.x, made.cell, made.mask, made.stops)
    got = received.mean[0]["a"][0].numpy()
    np.testing.assert_allclose(got, expected, atol=1e-9)
    assert bool(report.saved_tensors["active/0"][0].all()) != silence
    np.testing.assert_allclose(report.nmse, [made.compute_nmse(got, WEIGHT)], rtol=1e-9)


@pytest.mark.parametrize(("keys", "levels"), [(LATTICE, 15), (SLICES, 8), (PAIRS, 8)])
def test_without_noise_only_rounding_is_left(keys: dict[str, Any], levels: int) -> None:
    """One device gets its nearest levels; several, the mean of theirs, some columns at a time."""
    for rows, num_coordinates in ((1, P), (K, P), (2, CHUNK + P)):
        x = draw_updates(K, num_coordinates)
        who = make_cohort((rows,))
        link = make_bench("ci", snr_db=80.0, rounding="nearest", **keys)
        received, _ = send(link, (Group({"a": x[:rows]}),), who)
        top = x[:rows].abs().max().item()
        step = 2.0 * top / (levels - 1)
        nearest = ((x[:rows] + top) / step).round() * step - top
        torch.testing.assert_close(received.mean[0]["a"][0], nearest.mean(0))


@pytest.mark.parametrize(("keys", "uses"), [(LATTICE, 1), (SLICES, 3), (PAIRS, 2)])
def test_power_energy_uses_and_side_information(keys: dict[str, Any], uses: int) -> None:
    """The weakest device of `ci` is at its budget on the mean over the channel uses. A device tells
    its symbol power, whether it is on air, and its range or that of each tensor."""
    group = Group({"a": draw_updates(K, 14), "b": 9.0 * draw_updates(K, 9)})
    for wanted, told in (("payload", 3), ("block", 4), (3.0, 2)):
        link = make_bench("ci", range=wanted, **keys)
        _, report = send(link, (group,), WHO)
        saved = {name[:-2]: value[0, 0] for name, value in report.saved_tensors.items()}
        spent = (saved["p"].abs().square() * saved["m"]).numpy()
        assert spent.max() == pytest.approx(float(link.budget[0]))
        np.testing.assert_allclose(report.power[0], spent)
        np.testing.assert_allclose(compute_radiated(link, report)[0], P * uses * spent)
        assert report.symbols.tolist() == [uses * P]
        assert report.side_symbols.tolist() == [K * told]


@pytest.mark.parametrize("keys", [LATTICE, SLICES, PAIRS], ids=["lattice", "slices", "pairs"])
def test_a_sum_without_weights(keys: dict[str, Any]) -> None:
    """At a high SNR the plain sum is that of the rows, up to one step each."""
    x = draw_updates(K, P)
    link = make_bench("ci", snr_db=80.0, **keys)
    received, _ = send(link, (Group({"a": x}, weighting="none"),), make_cohort())
    levels = 15 if keys is LATTICE else 8
    step = 2.0 * x.abs().max().item() / (levels - 1)
    off = received.mean[0]["a"][0] - x.sum(0)
    assert 0 < off.abs().max().item() < K * step


@pytest.mark.parametrize(
    "transport",
    [
        {"name": "sumcomp", "radices": [16, 16]},
        {"name": "bit_slices", "bits": 8},
        {"name": "bit_slices", "bits": 8, "quadrature": True},
    ],
)
def test_phase_errors_hurt(transport: dict[str, Any]) -> None:
    """Residual phases shrink a symbol and turn it into the other quadrature."""
    errors = []
    for phase in (0.0, 1.5):
        tree: dict[str, Any] = {"name": "s", "transport": transport}
        tree |= {"channel": {"name": "awgn", "snr_db": 40.0}, "power": "ci", "data": "digits"}
        tree |= {"devices": {"count": 20}, "training": {"rounds": 2, "local_steps": 1}}
        found = otafl.run(tree | {"impairments": {"residual_phase_rad": phase}, "trials": 2})
        errors.append(float(found.aggregation_nmse.mean()))
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {},
            "power: 'gbma' does not go with transport: 'sumcomp', which receives sums of integers",
        ),
        (
            {"power": "ci", "receiver": {"name": "auto", "scale": "mmse"}},
            "receiver.scale: mmse does not go with transport: 'sumcomp'",
        ),
        (
            {"power": "ci", "impairments": {"carrier_offset": 0.1}},
            "impairments.carrier_offset: 0.1 does not go with transport: 'sumcomp'",
        ),
        (
            {"power": "ci", "transport": {"name": "bit_slices", "bits": 1, "quadrature": True}},
            "quadrature: true needs two bits for a channel use, got bits: 1",
        ),
    ],
)
def test_what_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as raised:
        load_scenario({"name": "s", "transport": "sumcomp"} | keys)
    assert said in " ".join(str(raised.value).split())
