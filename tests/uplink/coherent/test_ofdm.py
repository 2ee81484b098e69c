"""Over-the-air sums as OFDM samples: beside the symbols of over_the_air, what they cost, what is
refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.impaired_bench import make_impaired
from support.link_bench import draw_updates, make_bench, make_cohort, make_given

from otafl.core.contracts import Group, TransmitLimits
from otafl.core.errors import UserError
from otafl.scenario import load_scenario
from otafl.uplink.base import deliver
from otafl.validation.bench import Bench, Rig

pytestmark = pytest.mark.exact

MUNICH = {"name": "trace", "scene": "munich", "subcarrier_groups": 16, "bandwidth_hz": 5e6}
WAVE = {"name": "ofdm", "subcarriers": 16, "prefix": 13}
CHANNELS = {
    "flat": {"name": "rayleigh", "antennas": 2},
    "in blocks": {"name": "rayleigh", "block_symbols": 32},
    "over paths": MUNICH,
    "over paths, in blocks": MUNICH | {"block_symbols": 32, "antennas": 3},
}
PAYLOADS: dict[str, dict[str, Any]] = {
    "reals": {},
    "quadrature": {"quadrature": True},
    "by group": {"centre": True},
    "by block": {"normalise": "block", "centre": True},
}


def rigs(dtype: torch.dtype, sections: dict[str, Any], **payload: Any) -> list[Rig]:
    """An uplink of OFDM samples and one of symbols."""
    return [
        Bench().build_rig(5, 2, sections | {"transport": name | payload}, dtype=dtype)
        for name in (WAVE, {"name": "over_the_air"})
    ]


@pytest.mark.parametrize(("channel", "payload"), list(zip(CHANNELS, PAYLOADS, strict=True)))
def test_symbols_of_over_the_air(channel: str, payload: str) -> None:
    """The same estimate, noise included, and the same reported error, to single precision."""
    sections = {"channel": CHANNELS[channel], "power": "cao_static"}
    sections["impairments"] = {"residual_phase_rad": 0.3, "interference_db": 0.0}
    wave, plain = rigs(torch.float32, sections, **PAYLOADS[payload])
    x = wave.draw_symbols(101, 0)
    (one, of_one), (two, of_two) = wave.send(x, 1), plain.send(x, 1)
    assert (one - two).norm() < 1e-5 * two.norm()
    torch.testing.assert_close(of_one.nmse, of_two.nmse, rtol=1e-5, atol=0)
    for name in ("h", "p", "c", "eta"):
        torch.testing.assert_close(
            of_one.saved_tensors[f"{name}/0"], of_two.saved_tensors[f"{name}/0"]
        )
    assert of_one.participants.equal(of_two.participants)


def groups(rows: int) -> tuple[Group, ...]:
    """A payload of three groups: some rows alone, a mask, a plain sum."""
    mask = torch.from_numpy(np.random.default_rng(1).random((rows, 21)) < 0.6)
    some = torch.tensor([0, 2, 5])
    return (
        Group({"a": draw_updates(3, 9, 1)}, row_index=some),
        Group({"b": draw_updates(rows, 21, 2)}, mask={"b": mask}),
        Group({"c": draw_updates(rows, 6, 3)}, weighting="none"),
    )


@pytest.mark.parametrize("quadrature", [False, True])
def test_groups_share_ofdm_symbols(quadrature: bool) -> None:
    who = make_cohort((6,), sends=(True, True, True, False, True, True))
    got = {}
    for name, options in (("ofdm", {"subcarriers": 8, "prefix": 2}), ("over_the_air", {})):
        link = make_given(
            make_bench("gbma", transport=name, quadrature=quadrature, **options), groups=4
        )
        got[name] = link.deliver(groups(6), who)
    (wave, of_wave), (plain, of_plain) = got.values()
    for one, two in zip(wave.mean, plain.mean, strict=True):
        for block in two:
            torch.testing.assert_close(one[block], two[block], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(of_wave.nmse, of_plain.nmse)
    each = math.ceil(float(of_plain.symbols) / 4)  # of a group, on two sub-carriers
    assert of_wave.symbols.tolist() == [math.ceil(each / 2) * 10]


def test_what_it_costs() -> None:
    """40 reals on 16 sub-carriers: three OFDM symbols of 29 samples, the last half empty; what is
    radiated is repeated in the prefix. Side information is none of the samples."""
    wave, plain = rigs(torch.float64, {"channel": "awgn", "power": "cao_static"}, centre=True)
    x = wave.draw_symbols(40, 0)
    one, two = wave.send(x, 0)[1], plain.send(x, 0)[1]
    assert (one.symbols == 3 * 29).all()
    torch.testing.assert_close(one.airtime_s, two.airtime_s * 87 / 40)
    torch.testing.assert_close(one.on_air_s, two.on_air_s * 87 / 40)
    torch.testing.assert_close(one.energy_j, two.energy_j * 29 / 16)
    torch.testing.assert_close(one.power, two.power * 40 / 48)
    torch.testing.assert_close(one.side_symbols, two.side_symbols)


def test_limits_count_prefixes() -> None:
    """Energy that is left pays for the prefixes too, circuits for as long as the samples last."""
    link = make_bench("full", transport="ofdm", subcarriers=8, prefix=4, fading=False)
    payload = (Group({"a": draw_updates(6, 20)}),)
    state = link.channel.get_state(0)
    whole = deliver(link.transport, payload, make_cohort(), state, 0)[1]
    unit = link.transport.budget.unit_energy_j[:, None]
    radiated = whole.energy_j / unit
    circuits = torch.full_like(radiated, 0.5)  # a sample; 36 of them
    limits = TransmitLimits(energy_budget=0.25 * radiated + 36 * 0.5, energy_per_symbol=circuits)
    short = deliver(link.transport, payload, make_cohort(), state, 0, limits)[1]
    torch.testing.assert_close(short.energy_j / unit, 0.25 * radiated)


def test_noise_of_samples() -> None:
    """Through converters of 16 bits the error has the variance that is saved; 40,000 reals, three
    interferers at 0 dB and two antennas, within 5 standard errors."""
    link = make_given(make_bench("gbma", transport="ofdm", snr_db=10.0), antennas=2)
    link = make_impaired(link, adc_bits=16, adc_range=8.0, interference_db=0.0)
    x = draw_updates(6, 40_000)
    received, report = link.deliver((Group({"a": x}),), make_cohort())
    c, eta, noise = (report.saved_tensors[f"{name}/0"][0, 0] for name in ("c", "eta", "noise"))
    off = received.mean[0]["a"][0] - (c[:, None] * x).mean(0)
    ratio = float(off.square().mean() / (noise / eta / 36))
    assert ratio == pytest.approx(1.0, abs=5 * math.sqrt(2 / 40_000) + 1e-3)


def test_figures() -> None:
    """Nothing before the first round; a linear amplifier has no error vector, one that saturates
    has; both go on from what was kept."""
    link = make_bench("gbma", transport="ofdm", amplifier="rapp", backoff_db=0.0)
    assert all(torch.isnan(value).all() for value in link.transport.compute_metrics().values())
    for round in range(2):
        kept = link.transport.state_dict()
        link.deliver((Group({"a": draw_updates(6, 640)}),), make_cohort(), round)
    measures = link.transport.compute_metrics()
    assert 5 < float(measures["papr_db"]) < 9
    assert 0.05 < float(measures["evm"]) < 0.5
    again = make_bench("gbma", transport="ofdm", amplifier="rapp", backoff_db=0.0)
    again.transport.load_state_dict(kept)
    again.deliver((Group({"a": draw_updates(6, 640)}),), make_cohort(), 1)
    assert again.transport.compute_metrics() == measures
    linear = make_bench("gbma", transport="ofdm")
    linear.deliver((Group({"a": draw_updates(6, 640)}),), make_cohort())
    assert linear.transport.compute_metrics()["evm"] == 0.0


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"transport": WAVE | {"prefix": 65, "subcarriers": 64}},
            "transport: prefix: got 65, more than the 64 samples of the OFDM symbol",
        ),
        (
            {"channel": {"name": "tdl-a", "subcarrier_groups": 12}},
            "transport.subcarriers: expected a multiple of the channel's 12 groups, got 64; use 72",
        ),
        (
            {"channel": {"name": "rayleigh", "block_symbols": 100}},
            "channel.block_symbols: expected whole OFDM symbols of 64 sub-carriers, got 100 "
            "channel uses; use 128",
        ),
        (
            {"impairments": {"interference": "alpha_stable", "interference_db": 0}},
            "use transport: over_the_air",
        ),
    ],
)
def test_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=r".") as error:
        load_scenario({"name": "s", "transport": {"name": "ofdm"}} | keys)
    assert said in str(error.value)


def test_groups_of_a_file_that_do_not_fit() -> None:
    """They are not known before it is read."""
    link = make_given(make_bench("full", transport="ofdm"), groups=5)
    with pytest.raises(UserError, match="a multiple of the channel's 5 groups, got 64; use 65"):
        link.deliver((Group({"a": draw_updates(6, 40)}),), make_cohort())
