"""Faults of `--set`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.faults_of import list_file_faults
from support.scenarios import write_scenario

from otafl.core.errors import UserError
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("seed", "--set seed: must be of the form key=value, like channel.snr_db=10"),
        ("seed=-1", "--set seed=-1: seed: got -1; must be greater than or equal to 0"),
        ("seed.x=3", "--set seed.x=3: seed: got {'x': 3}; must be a whole number"),
        (
            "seed=[1",
            "--set seed=[1: bad YAML: while parsing a flow sequence: expected ',' or ']', but got "
            "'<stream end>'",
        ),
        (
            "power.treshold=1",
            "--set power.treshold=1: power.treshold: unknown key; did you mean 'threshold'? (known "
            "keys: name, threshold, relative, reference, constraint, gamma)",
        ),
        (
            "channel.snr_db=2",
            "--set channel.snr_db=2: this key is swept; say sweep.channel.snr_db=[...], or "
            "sweep={} for no sweep",
        ),
    ],
)
def test_an_override(tmp_path: Path, override: str, said: str) -> None:
    text = "name: x\ntrials: 2\npower: tci\nsweep: {channel.snr_db: [1, 2]}\n"
    assert list_file_faults(tmp_path, text, override) == [said]


def test_a_fault_of_the_file_is_not_laid_to_an_override(tmp_path: Path) -> None:
    text = "name: x\ndevices:\n  count: 0\n"
    assert list_file_faults(tmp_path, text, "devices.participants=1", "seed=x") == [
        "quickstart.yaml:3:3: devices.count: got 0; must be greater than or equal to 1",
        "--set seed=x: seed: got 'x'; must be a whole number",
    ]


@pytest.mark.parametrize(
    "override",
    ["channel.snr_db=", "channel.snr_db= ", "channel.snr_db=#3", "channel={name: awgn, snr_db: }"],
)
def test_an_empty_value_is_not_null(tmp_path: Path, override: str) -> None:
    """An unset variable of the shell would replace 0 dB by the default."""
    text = "name: x\nchannel: {snr_db: 0}\n"
    (said,) = list_file_faults(tmp_path, text, override)
    assert said.startswith(f"--set {override}: has no value")
    assert "null for none" in said
    for null in ("null", "~"):
        given = load_scenario(write_scenario(tmp_path, text), [f"channel.snr_db={null}"])
        assert given.channel.snr_db is None


@pytest.mark.parametrize("overrides", [{"channel.snr_db": ""}, {"seed": None}, "seed=3", [None]])
def test_overrides_are_a_list_of_texts(overrides: Any) -> None:
    with pytest.raises(UserError, match="overrides: expected a list"):
        load_scenario({"name": "x"}, overrides)


PROX = "name: x\nalgorithm: {name: fedprox, learning_rate: 0.2, penalty: 3.0}\n"


def test_another_component_keeps_the_keys_of_its_section(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, PROX)
    for key in ("algorithm.name", "algorithm"):
        found = load_scenario(path, [f"{key}=ditto"]).algorithm
        assert (found.name, found.learning_rate, found.penalty) == ("ditto", 0.2, 3.0)
    assert load_scenario(path, ["algorithm={name: fedavg}"]).algorithm.learning_rate == 0.1
    found = load_scenario(path, ["sweep.algorithm.name=[fedprox, ditto]"])
    assert found.sweep == {"algorithm.name": ["fedprox", "ditto"]}


@pytest.mark.parametrize("key", ["algorithm.name", "algorithm"])
def test_a_component_without_a_key_of_its_section(tmp_path: Path, key: str) -> None:
    (fault,) = list_file_faults(tmp_path, PROX, f"{key}=fedavg")
    assert "algorithm.penalty: unknown key; it is a key of fedprox and " in fault
