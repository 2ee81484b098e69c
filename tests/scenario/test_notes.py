"""What a scenario asks for that makes no difference is noted, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.command import call

from otafl.core import registry
from otafl.scenario import expand, list_notes, load_scenario, to_yaml

pytestmark = pytest.mark.exact


def noted(**keys: Any) -> list[str]:
    return list_notes(expand(load_scenario({"name": "s", **keys})))


def test_a_policy_that_no_transport_asks() -> None:
    for transport in ("digital", "ideal"):
        assert noted(power="tci", transport=transport) == [
            f"power: 'tci' without effect, because transport '{transport}' uses no power policy: "
            "every device sends at full power; use transport over_the_air or ofdm or type_based"
        ]
    assert not noted(power="tci")
    (said,) = noted(transport="digital", sweep={"power": ["gbma", "ci"]})
    assert said.startswith("power: 'ci' without effect")


def test_what_is_no_mistake() -> None:
    assert not noted(transport="digital")
    assert not noted(power="ci", sweep={"transport": ["over_the_air", "digital"]})
    assert not noted(transport="digital", power=registry.TABLES["power"].default)
    filled = load_scenario({"name": "s", "transport": "digital"})
    assert not noted(**{k: v for k, v in yaml.safe_load(to_yaml(filled)).items() if k != "name"})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"impairments": {"adc_range": 2}},
            "impairments.adc_range: 2.0 without effect, because impairments.adc_bits has its "
            "default; set adc_bits, or leave adc_range out",
        ),
        ({"impairments": {"interferers": 2}}, "impairments.interferers: 2 "),
        ({"devices": {"compute": {"jitter_scale": 0.1}}}, "devices.compute.jitter_scale: 0.1 "),
        ({"training": {"fine_tune_learning_rate": 1}}, "training.fine_tune_learning_rate: 1.0 "),
    ],
)
def test_keys_that_need_another(keys: dict[str, Any], said: str) -> None:
    (found,) = noted(**keys)
    assert found.startswith(said)


def test_a_key_that_has_an_effect_at_some_points() -> None:
    assert not noted(impairments={"adc_range": 2, "adc_bits": 8})
    assert not noted(impairments={"adc_range": 2}, sweep={"impairments.adc_bits": [None, 8]})


def test_declared_fields_exist() -> None:
    for table in registry.TABLES:
        for name in registry.list_names(table):
            kind = registry.load_settings_class(table, name)
            for pair in kind.idle_without.items():
                assert {*pair} <= {*kind.model_fields}


def test_settings_that_need_a_threshold() -> None:
    """They are noted only if no point of a sweep has a threshold, and change no hash."""
    for key, value in (("constraint", "peak"), ("shares", "active")):
        assert noted(transport={"name": "digital", key: value}) == [
            f"transport.{key}: {value} without effect, because transport.gain_threshold has its "
            f"default; set gain_threshold, or leave {key} out"
        ]
        idle = {"name": "digital", key: value}
        thresholds = {"transport.gain_threshold": [0.0, 0.1]}
        said = noted(transport=idle | {"access": "ofdma"}, sweep=thresholds)
        assert not any("without effect" in text for text in said)
        used = {"name": "digital", "gain_threshold": 0.1, "access": "ofdma", key: value}
        assert not noted(transport=used)
        (said,) = noted(sweep={"transport": [idle, "over_the_air"], "seed": [0, 1]})
        assert said.startswith(f"transport.{key}: ")
    assert len(noted(transport={"name": "digital", "constraint": "peak", "shares": "active"})) == 2
    assert not noted(transport={"name": "digital", "constraint": "average", "shares": "all"})


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
    assert not noted(channel=channel, transport=wave | {"prefix": enough})
    assert noted(channel=channel, transport=wave | {"prefix": enough - 1})
    assert not noted(transport={"name": "ofdm", "prefix": 0})  # a flat channel


def test_check_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text("name: s\npower: ci\ntransport: digital\n")
    call("check", "s.yaml")
    assert (
        "otafl: warning: power: 'ci' without effect, because transport" in capsys.readouterr().err
    )


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


def test_devices_too_small_for_their_penalty() -> None:
    """At the defaults steps diverge below 0.01 10 / (2 ln(1 + e^-2.5)^2) = 8.03 samples."""

    def of(samples: int, **keys: Any) -> list[str]:
        part = keys.pop("partition", "iid")
        data = {"name": "digits", "train_samples": samples, "partition": part}
        return noted(algorithm={"name": "pfedbayes", **keys}, devices={"count": 10}, data=data)

    assert not of(90)
    (said,) = of(89)
    assert said == (
        "algorithm.penalty: steps of 0.01 with penalty 10 diverge on devices of few samples, which "
        "here have only 8, so their penalty is lowered; use a smaller penalty or learning rate"
    )
    assert not of(89, penalty=9.0)
    assert of(90, personal_learning_rate=0.02, learning_rate=0.02)
    assert not of(90, personal_learning_rate=0.015, learning_rate=0.006)
    (said,) = of(80, partition="dirichlet")
    assert "here have on average 8" in said
    data = {"name": "digits", "test": "per_device", "test_share": 0.5, "partition": "iid"}
    (said,) = noted(algorithm="pfedbayes", devices={"count": 112}, data=data)
    assert "here have only 8" in said
    assert not noted(algorithm="pfedbayes", data="fashion_mnist")
