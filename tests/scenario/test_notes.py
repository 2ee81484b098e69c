"""What a scenario asks for that makes no difference is noted, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from otafl.core import registry
from otafl.scenario import expand, list_notes, load_scenario, to_yaml

pytestmark = pytest.mark.exact


def noted(**keys: Any) -> list[str]:
    return list_notes(expand(load_scenario({"name": "s", **keys})))


def test_a_policy_that_no_transport_asks() -> None:
    for transport in ("digital", "ideal"):
        (said,) = noted(power="tci", transport=transport)
        assert said.startswith(
            f"power: 'tci' without effect, because transport '{transport}' uses no power policy: "
            "every device sends at full power; use transport over_the_air or ofdm or "
        )
    assert not noted(power="tci")
    (said,) = noted(transport="digital", sweep={"power": ["gbma", "ci"]})
    assert said.startswith("power: 'ci' without effect")


def test_what_is_no_mistake() -> None:
    assert not noted(transport="digital")
    assert not noted(power="tci", sweep={"transport": ["over_the_air", "digital"]})
    assert not noted(transport="digital", power=registry.TABLES["power"].default)
    filled = load_scenario({"name": "s", "transport": "digital"})
    assert not noted(**{k: v for k, v in yaml.safe_load(to_yaml(filled)).items() if k != "name"})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"impairments": {"adc_range": 2}},
            "impairments.adc_range: 2.0 without effect, because impairments.adc_bits is off; "
            "set adc_bits, or leave adc_range out",
        ),
        ({"devices": {"compute": {"jitter_scale": 0.1}}}, "devices.compute.jitter_scale: 0.1 "),
    ],
)
def test_keys_that_need_another(keys: dict[str, Any], said: str) -> None:
    (found,) = noted(**keys)
    assert found.startswith(said)


def test_a_key_that_has_an_effect_at_some_points() -> None:
    assert not noted(impairments={"adc_range": 2, "adc_bits": 8})
    assert not noted(impairments={"adc_range": 2}, sweep={"impairments.adc_bits": [None, 8]})
    swept = {"transport.backoff_db": [3, 4], "transport.amplifier": ["linear", "rapp"]}
    assert not noted(transport="ofdm", sweep=swept)


def test_values_of_a_key_that_needs_another() -> None:
    """All points are the same, also that of the default."""
    (said,) = noted(sweep={"impairments.tail_index": [1.2, 1.8]})
    assert said.startswith("impairments.tail_index: ")


def test_settings_that_need_a_threshold() -> None:
    """They are noted only if no point of a sweep has a threshold."""
    idle = {"name": "digital", "gain_threshold": 0.0, "constraint": "peak"}
    assert noted(transport=idle) == [
        "transport.constraint: peak without effect, because transport.gain_threshold is off; "
        "set gain_threshold, or leave constraint out"
    ]
    thresholds = {"transport.gain_threshold": [0.0, 0.1]}
    assert not any("without effect" in text for text in noted(transport=idle, sweep=thresholds))
    assert not noted(transport=idle | {"constraint": "average"})
    assert not noted(transport={"name": "digital", "constraint": "peak"})  # which has a threshold


def test_shares_of_turns_without_a_bound() -> None:
    turns = {"name": "digital", "gain_threshold": 0.1, "shares": "active"}
    (said,) = noted(transport=turns)
    assert said == (
        "transport.shares: 'active' without effect, because tdma without max_symbols divides "
        "nothing; use access: ofdma, or set max_symbols"
    )
    for used in ({"max_symbols": 1e4}, {"access": "ofdma"}, {"shares": "all"}):
        assert not noted(transport=turns | used)
    (said,) = noted(transport=turns | {"gain_threshold": 0.0})
    assert said.startswith("transport.shares: active ")


def test_cells_that_do_not_hear_each_other() -> None:
    cells: dict[str, Any] = {"name": "cells", "servers": 7}
    (said,) = noted(topology=cells)
    assert said.startswith(
        "topology: servers have no inter-cell interference, because channel 'rayl"
    )
    assert not noted(topology=cells | {"cross_gain_db": -10})
    assert not noted(topology=cells | {"reuse": 7})
    assert not noted(topology=cells, channel="umi")
    assert not noted(topology=cells, transport="ideal")


def test_a_prefix_shorter_than_the_paths() -> None:
    """Some of the first devices in Munich hear paths that are microseconds late."""
    channel = {"name": "trace", "scene": "munich", "bandwidth_hz": 1e7, "subcarrier_groups": 128}
    wave = {"name": "ofdm", "subcarriers": 128}
    keys: dict[str, Any] = {"channel": channel, "transport": wave | {"prefix": 0}}
    (said,) = noted(**keys, sweep={"training.rounds": [1, 2]})
    assert said.startswith("transport.prefix: 0 samples are shorter than the channel, whose last")
    enough = int(said.rsplit(" ", 1)[1])
    few = {"channel": channel, "training": {"rounds": 1}}
    assert not noted(**few, transport=wave | {"prefix": enough})
    assert noted(**few, transport=wave | {"prefix": enough - 1})
    assert not noted(transport={"name": "ofdm", "prefix": 0})  # a flat channel


def test_a_trace_that_is_shorter_than_the_run() -> None:
    channel = {"name": "trace", "scene": "munich"}
    (said,) = noted(channel=channel, sweep={"training.rounds": [12, 13]})
    assert said.startswith("channel.scene: 'munich' has 12 rounds, fewer than training.rounds (13)")
    assert not noted(channel={"name": "trace", "path": "absent.nc"})  # an error, not a note


@pytest.mark.parametrize("cell", ["umi", "uma", "rma"])
def test_cells_outside_the_range_of_their_model(cell: str) -> None:
    assert not noted(channel=cell)
    limit = 3e10 if cell == "rma" else 1e11
    for key, inside, outside in (
        ("carrier_hz", limit, 1.01 * limit),
        ("carrier_hz", 5e8, 4.9e8),
        ("cell_radius_m", 5000, 5001),
        ("min_distance_m", 10, 9),
        ("server_height_m", {"umi": 10, "uma": 25, "rma": 150}[cell], 151),
        ("tx_power_dbm", 31, 32),
        ("speed_kmh", 500, 501),
    ):
        assert not noted(channel={"name": cell, key: inside}), key
        (said,) = noted(channel={"name": cell, key: outside})
        assert said.startswith(f"channel.{key}: {outside:g} is outside the range")


def test_models_over_the_air_of_stale_devices() -> None:
    """FedAsync's models take the uplink's noise in proportion to them."""
    for transport in ("over_the_air", "ofdm", "reed"):
        (said,) = noted(algorithm="fedasync", transport=transport)
        assert said.startswith(f"algorithm.sends: 'model' over transport '{transport}' gives")
        assert said.endswith("use sends: increment")
    assert not noted(algorithm="fedasync", transport="digital")
    assert not noted(algorithm={"name": "fedasync", "sends": "increment"})
    (said,) = noted(sweep={"algorithm": ["fedavg", "fedasync"], "channel.snr_db": [0, 10]})


def test_models_that_privacy_clips() -> None:
    """A clipped model moves the server's towards zero; increments are what clipping is for."""
    private = {"privacy": {"clip": 2.0}}
    (said,) = noted(algorithm={"name": "fedavg", "sends": "model"}, **private)
    assert said == (
        "privacy.clip: algorithm 'fedavg' with these settings sends models, which are scaled down "
        "to norm 2, and so is the server's; use algorithm.sends: increment"
    )
    algorithms = ["fedavg", {"name": "fedmid", "bias_mode": "ota"}]
    sweep = {"algorithm": algorithms, "privacy.clip": [None, 1.0, 2.0]}
    said_in_sweep = noted(sweep=sweep)
    assert [one.partition(" with ")[0] for one in said_in_sweep] == [
        "privacy.clip: algorithm 'fedmid'"
    ] * 2
    assert said_in_sweep[0].endswith("use an algorithm that sends increments, such as fedavg")
    assert not noted(algorithm={"name": "fedavg", "sends": "model"})
    assert not noted(**private)
